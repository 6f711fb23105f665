"""``paceline train card``: the README of a trained drafter."""

from pathlib import Path
from typing import Annotated

import typer

app = typer.Typer()


@app.command()
def card(
    folder: Annotated[Path, typer.Argument(help="Folder of the drafter, with the record of its training.")],
    *,
    evaluation: Annotated[Path, typer.Option(help="JSON of `paceline train evaluate`.")],
    group: Annotated[str, typer.Option(help="What the drafter's group is called there.")],
) -> None:
    """Write README.md: data, commands, seed, time, parameters, and how many drafts are accepted."""
    from paceline.training.card import write_card  # noqa: PLC0415  # lazy, as in all commands
    from paceline.training.record import read_record  # noqa: PLC0415

    write_card(folder, read_record(folder), evaluation, group=group)
