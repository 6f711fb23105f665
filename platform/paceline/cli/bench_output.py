"""Where the commands of ``paceline bench`` put their results."""

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console

from paceline.errors import ConfigError

if TYPE_CHECKING:
    from paceline.bench.report import Result

Output = Annotated[
    list[Path] | None,
    typer.Option("--output", "-o", metavar="FILE", help="Write .json, .md or .png; may be given several times."),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print the result as JSON instead of tables.")]


def check_outputs(paths: Sequence[Path] | None) -> None:
    """Refuse a file that cannot be written before anything is measured. Raises ConfigError."""
    for path in paths or ():
        if path.suffix not in {".json", ".md", ".png"}:
            raise ConfigError(f"--output {path.name}: results are written as .json, .md or .png.")


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
