"""Writes results: one record of tables and data, as JSON, as Markdown, on the terminal. Never without provenance."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table as RichTable

from paceline.bench.provenance import Provenance
from paceline.errors import ConfigError

FORMAT = 1  # of the JSON files; grows when a field changes its meaning


@dataclass(frozen=True, slots=True)
class Table:
    """Figures for people: everything is text already."""

    title: str
    columns: Sequence[str]
    rows: Sequence[Sequence[str]]
    notes: Sequence[str] = ()


@dataclass(frozen=True, slots=True)
class Result:
    """One measurement: tables for people, data for programs, and where both come from."""

    kind: str  # "run", "pass", "gpu", "memory"
    provenance: Provenance | None
    tables: Sequence[Table]
    data: Mapping[str, Any]


def check_provenance(result: Result) -> Provenance:
    """The provenance of a result. Raises ConfigError if there is none, or if a part of it is empty."""
    provenance = result.provenance
    if provenance is None:
        raise ConfigError("This result has no provenance, so it is not written.")
    # No settings are a statement too; all else must say something.
    missing = [
        field.name
        for field in fields(provenance)
        if field.name not in {"config", "seed"} and not getattr(provenance, field.name)
    ]
    if missing:
        raise ConfigError(f"The provenance of this result lacks {', '.join(missing)}, so it is not written.")
    return provenance


def write(result: Result, path: Path) -> None:
    """Write ``path`` as its suffix says: .json or .md; .png where the result can be drawn.

    Raises ConfigError for another suffix, and for a result without provenance.
    """
    check_provenance(result)
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.suffix == ".json":
        path.write_text(to_json(result), encoding="utf-8")
    elif path.suffix == ".md":
        path.write_text(to_markdown(result), encoding="utf-8")
    elif path.suffix == ".png":
        from paceline.bench.plot import draw  # noqa: PLC0415  # matplotlib is an extra

        draw(result, path)
    else:
        raise ConfigError(f"'{path.name}': results are written as .json, .md or .png.")


def to_json(result: Result) -> str:
    """The whole result as JSON."""
    body = {
        "format": FORMAT,
        "kind": result.kind,
        "provenance": asdict(check_provenance(result)),
        "tables": [asdict(table) for table in result.tables],
        "data": result.data,
    }
    return json.dumps(body, indent=1, ensure_ascii=False, allow_nan=False) + "\n"


def to_markdown(result: Result) -> str:
    """The tables with their provenance below."""
    provenance = check_provenance(result)
    parts = []
    for table in result.tables:
        head = [_row(table.columns), _row(["---"] * len(table.columns))]
        parts.append(f"## {table.title}")
        parts.append("\n".join([*head, *(_row(row) for row in table.rows)]))
        parts.extend(f"- {note}" for note in table.notes)
    parts.append("## Provenance")
    parts.append("\n".join(f"- {name}: {text}" for name, text in _provenance_lines(provenance)))
    return "\n\n".join(parts) + "\n"


def show(result: Result, console: Console) -> None:
    """Print the tables, and one line of provenance."""
    for table in result.tables:
        shown = RichTable(title=table.title, title_justify="left")
        for index, column in enumerate(table.columns):
            shown.add_column(column, justify="right" if index else "left")
        for row in table.rows:
            shown.add_row(*row)
        console.print(shown)
        for note in table.notes:
            console.print(f"  {note}")
    if result.provenance:
        machine = result.provenance.machine
        console.print(f"{result.provenance.source[:20]}, {machine['cpu']}, {machine['cores']} cores")


def _row(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


def _provenance_lines(provenance: Provenance) -> list[tuple[str, str]]:
    return [
        ("taken", provenance.taken_at),
        ("source", provenance.source),
        ("machine", ", ".join(f"{name} {value}" for name, value in provenance.machine.items() if value)),
        ("versions", ", ".join(f"{name} {value}" for name, value in provenance.versions.items())),
        ("seed", str(provenance.seed)),
        ("command", f"`{provenance.command}`"),
        ("settings", f"`{json.dumps(provenance.config, ensure_ascii=False)}`"),
    ]
