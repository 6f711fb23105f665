"""``paceline drafter``: for those who write one."""

import asyncio
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
import yaml

from paceline.cli.bench_output import AsJson, Output, check_outputs, deliver, say
from paceline.errors import ConfigError

if TYPE_CHECKING:
    from paceline.config.schema import DrafterConfig

app = typer.Typer(help="Check a drafter of your own.", no_args_is_help=True)


@app.callback()
def _group() -> None:
    """Check a drafter of your own."""


@app.command()
def check(
    drafter: Annotated[str, typer.Argument(metavar="PACKAGE.MODULE:CLASS", help="The class, or a method's name.")],
    *,
    model: Annotated[str, typer.Option(help="The target: a name, a folder or a hub id.")] = "smollm2-135m",
    option: Annotated[
        list[str] | None, typer.Option(metavar="NAME=VALUE", help="Keyword argument of the class; may be repeated.")
    ] = None,
    dtype: Annotated[str, typer.Option(help="float32, bfloat16 or float16.")] = "float32",
    prompts: Annotated[int, typer.Option(min=1, help="Prompts to answer, at each of two temperatures.")] = 8,
    max_tokens: Annotated[int, typer.Option(min=1, help="Most tokens of an answer.")] = 64,
    max_draft_tokens: Annotated[int, typer.Option(min=1, max=64, help="Most drafts of a round.")] = 5,
    threads: Annotated[int, typer.Option(min=1, help="Threads of the arithmetic on CPU.")] = 2,
    seed: Annotated[int, typer.Option(help="Of the answers.")] = 0,
    output: Output = None,
    as_json: AsJson = False,
) -> None:
    """Check what a drafter owes its user, that answers stay those of plain decoding, and what it is worth.

    Modules are looked for in this folder too. Exit code 1 if a claim is violated; each one is named.
    """
    from paceline.bench.drafter_check import CheckSetup, check_drafter  # noqa: PLC0415  # lazy, as in all commands
    from paceline.config.schema import ModelConfig  # noqa: PLC0415

    check_outputs(output)
    sys.path.insert(0, str(Path.cwd()))
    setup = CheckSetup(
        drafter=_section(drafter, _options(option or [])),
        model=ModelConfig.model_validate({"source": model, "dtype": dtype}),
        num_prompts=prompts,
        max_tokens=max_tokens,
        max_draft_tokens=max_draft_tokens,
        threads=threads,
        seed=seed,
    )
    result = asyncio.run(check_drafter(setup, say))
    deliver(result, output, as_json=as_json)
    for sentence in result.data["violated"]:
        print(f"paceline: violated: {sentence}", file=sys.stderr)
    if result.data["violated"]:
        raise typer.Exit(1)


def _options(pairs: list[str]) -> dict[str, Any]:
    options: dict[str, Any] = {}
    for pair in pairs:
        name, separator, value = pair.partition("=")
        if not separator or not name:
            raise ConfigError(f"--option {pair}: write NAME=VALUE, such as --option reach=4.")
        try:
            options[name] = yaml.safe_load(value)
        except yaml.YAMLError:
            options[name] = value
    return options


def _section(drafter: str, options: dict[str, Any]) -> "DrafterConfig":
    from paceline.config.load import config_from_mapping  # noqa: PLC0415  # lazy, as in all commands
    from paceline.config.schema import is_outside_class  # noqa: PLC0415

    own = {"options": options} if is_outside_class(drafter) else options
    section = {"method": drafter, "place": "in_process", **own}
    return config_from_mapping({"drafters": {"drafter": section}}, source="The drafter").drafters["drafter"]
