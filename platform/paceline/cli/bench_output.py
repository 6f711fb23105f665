"""Where the commands of ``paceline bench`` put their results."""

import sys
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console

from paceline.errors import ConfigError

if TYPE_CHECKING:
    from paceline.bench.report import Result

Output = Annotated[
    list[Path] | None,
    typer.Option("--output", "-o", metavar="FILE", help="Write .json, .md or, of a run, .png; may be repeated."),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print the result as JSON instead of tables.")]


def check_outputs(paths: Sequence[Path] | None, *, pictures: bool = False) -> None:
    """Refuse a file that cannot be written before anything is measured. Raises ConfigError.

    ``pictures``: whether the result can be drawn.
    """
    for path in paths or ():
        if path.suffix not in {".json", ".md", ".png"}:
            raise ConfigError(f"--output {path.name}: results are written as .json, .md or .png.")
        if path.suffix == ".png":
            if not pictures:
                raise ConfigError(f"--output {path.name}: this result has no picture; write .json or .md.")
            if find_spec("matplotlib") is None:
                raise ConfigError("Pictures need matplotlib: install 'paceline[bench]', or write .json or .md.")


def deliver(result: "Result", paths: Sequence[Path] | None, *, as_json: bool) -> None:
    """Print the result and write its files."""
    from paceline.bench.report import show, to_json, write  # noqa: PLC0415  # lazy, as above

    if as_json:
        sys.stdout.write(to_json(result))
    else:
        show(result, Console())
    for path in paths or ():
        write(result, path)


def say(text: str) -> None:
    """Progress, where it does not mix with the result."""
    print(text, file=sys.stderr)
