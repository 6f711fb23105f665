"""The card of a trained drafter: its README, written from the record of the training and from an evaluation."""

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from paceline.errors import ConfigError
from paceline.training.record import TrainingRecord

FILE = "README.md"
_KIND = "acceptance"  # of the evaluation's result
_SHOWN_POSITIONS = 4
_HEAD = ("budget, temperature, prompts", "answers", "a_1", "a_i", "tau")
_AVERAGES = (
    "a_1 and tau are means over prompts with 95 % bootstrap intervals over prompts, looping answers left out; a_i: of "
    "the rounds that tested draft i, the share that accepted it."
)


def write_card(folder: Path, record: TrainingRecord, evaluation: Path, *, group: str) -> None:
    """Write the card of the drafter in ``folder``, which is called ``group`` in ``evaluation``.

    ``evaluation`` is JSON of `paceline train evaluate`. Raises ConfigError for another file, and for one in which the
    group was not asked or was a drafter of another training.
    """
    (folder / FILE).write_text(card(record, read_evaluation(evaluation), group=group), encoding="utf-8")


def read_evaluation(path: Path) -> dict[str, Any]:
    """An evaluation as JSON. Raises ConfigError."""
    try:
        body: dict[str, Any] = json.loads(path.read_text("utf-8"))
        if body["kind"] == _KIND and "cells" in body["data"]:
            return body
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ConfigError(f"{path} is no result of `paceline train evaluate` as JSON ({error!r}).") from error
    raise ConfigError(f"{path} is a result of another kind, not of `paceline train evaluate`.")


def card(record: TrainingRecord, evaluation: dict[str, Any], *, group: str) -> str:
    """The card as Markdown. Raises ConfigError where the evaluation is not of this drafter."""
    data = evaluation["data"]
    cells = [cell for cell in data["cells"] if cell["group"] == group]
    if not cells:
        raise ConfigError(f"The evaluation has no drafter group '{group}'.")
    known = data["records"].get(group)
    if known is not None and (known["data"], known["seconds"]) != (
        [{"name": entry.name, "sha256": entry.sha256} for entry in record.data],
        record.seconds,
    ):
        raise ConfigError(f"The evaluation's group '{group}' was another training than this one; evaluate again.")
    parts = [
        f"# {record.method} for {record.target}",
        "\n".join(_facts(record)),
        "## Made by",
        "```\n" + "\n".join(record.commands) + "\n```",
        "## Data",
        _table(["file", "SHA-256"], [[entry.name, entry.sha256] for entry in record.data]),
        "## Acceptance",
        _table(_HEAD, [_acceptance_row(cell) for cell in cells]),
        _AVERAGES,
        f"Measured by `{evaluation['provenance']['command']}` at {evaluation['provenance']['source']}.",
    ]
    return "\n\n".join(parts) + "\n"


def _facts(record: TrainingRecord) -> Iterator[str]:
    yield f"- Target: {record.target}; the drafter reads its embedding and its output head from there."
    yield (
        f"- Parameters that it adds: {record.parameters:,}, {record.share:.1%} of the target's "
        f"{record.target_parameters:,}."
    )
    yield f"- Data: {record.dialogues:,} dialogues, {record.answer_tokens:,} tokens of answers that the target wrote."
    yield (
        f"- Training: {record.token_passes:,} token passes in {record.seconds / 3600:.2f} hours; seed {record.seed}."
    )
    for name, value in record.options.items():
        yield f"- {_words(name)}: {_shown(value)}."
    for name, value in record.measured.items():
        yield f"- On dialogues held out, {_words(name)}: {_shown(value)}."


def _acceptance_row(cell: dict[str, Any]) -> list[str]:
    found = cell["figures"]
    positions = " ".join(f"{value:.2f}" for value in found["positions"][:_SHOWN_POSITIONS])
    name = f"{cell['budget']}, {cell['temperature']:g}, {cell['prompts']}"
    return [name, str(found["answers"]), _interval(found["first"]), positions or "-", _interval(found["tau"])]


def _interval(found: Sequence[float] | None) -> str:
    return "-" if found is None else f"{found[0]:.3f} [{found[1]:.3f}, {found[2]:.3f}]"


def _table(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    return "\n".join("| " + " | ".join(cells) + " |" for cells in (columns, ["---"] * len(columns), *rows))


def _words(name: str) -> str:
    return name.replace("_", " ")


def _shown(value: object) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)
