"""The result of an evaluation: acceptance by position and kind of text, comparisons, and the shape of the trees."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from typing import Any

from paceline.bench.provenance import Provenance
from paceline.bench.report import Result, Table
from paceline.training.acceptance_figures import (
    DraftedAnswer,
    Figures,
    Interval,
    accepted_ratio,
    depth_of,
    figures,
    ratio_of_means,
    select,
    width_of,
)
from paceline.training.evaluate import Cell, CellKey, EvaluationSetup
from paceline.training.record import TrainingRecord
from paceline.training.scaling import scaling_table

_NONE = "-"
_SHOWN_POSITIONS = 5
_SURE = frozenset({"copy", "code"})  # kinds of text that are easy to draft, and one that is hard
_UNSURE = frozenset({"creative"})
_AVERAGES = (
    "a_i: of the rounds that tested draft i, the share that accepted it. 'a_1' and 'tau' are means over prompts with "
    "95 % bootstrap intervals over prompts; 'pooled' counts every round the same."
)
_LOOPS = "Looping answers (any 8 words in a row three times) stand in a row of their own and nowhere else."
_SPARSE = "Depth: levels drafted a round. Width: nodes a level. Rounds without drafts count in neither."


def evaluation_result(
    cells: Sequence[Cell],
    setup: EvaluationSetup,
    *,
    provenance: Provenance,
    records: Mapping[str, TrainingRecord],
    baseline: str | None = None,
) -> Result:
    """The result of ``cells``. ``records``: of the groups whose drafter was trained; ``baseline``: group to compare."""
    tables = [_headline_table(cells, setup), *(_category_table(cells, name) for name in _sets(cells))]
    if baseline is not None:
        tables.append(_comparison_table(cells, baseline, setup.seed))
    tables += [table for table in (_shape_table(cells, setup.seed), scaling_table(cells, records)) if table]
    data = {
        "setup": _description(setup),
        "records": {group: asdict(record) for group, record in records.items()},
        "cells": [_cell_data(cell, setup.seed) for cell in cells],
    }
    return Result("acceptance", provenance, tables, data)


def _headline_table(cells: Sequence[Cell], setup: EvaluationSetup) -> Table:
    columns = ["drafter, budget, temperature, prompts", "answers", "a_1", "a_i", "a_i pooled", "tau", "tau pooled"]
    columns += ["depth", "width", "drafted", "failed"]
    rows = []
    for cell in cells:
        for label, answers in _split(cell):
            found = figures(answers, seed=setup.seed)
            failed = str(len(cell.errors)) if not label else _NONE
            share = _NONE if found.drafted_share is None else f"{found.drafted_share:.0%}"
            rows.append([_name(cell.key) + label, *_acceptance_cells(found), *_shape_cells(found), share, failed])
    return Table("Acceptance", columns, rows, [_AVERAGES, _LOOPS, _SPARSE, *_error_notes(cells)])


def _split(cell: Cell) -> Iterator[tuple[str, list[DraftedAnswer]]]:
    yield "", select(cell.answers)
    if loops := [answer for answer in cell.answers if answer.looping]:
        yield " (looping)", loops


def _category_table(cells: Sequence[Cell], prompts: str) -> Table:
    """First position and tau of each category of one set of prompts."""
    own = [cell for cell in cells if cell.key.prompts == prompts]
    categories = sorted({answer.category for cell in own for answer in cell.answers})
    rows = []
    for cell in own:
        found = [figures(select(cell.answers, lambda answer, c=name: answer.category == c)) for name in categories]  # type: ignore[misc]
        rows.append([_name(cell.key), *(f"{_value(one.first)} / {_value(one.tau)}" for one in found)])
    notes = ["a_1 / tau, means over the prompts of a category whose answers do not loop."]
    return Table(f"By category: {prompts}", ["drafter, budget, temperature, prompts", *categories], rows, notes)


def _comparison_table(cells: Sequence[Cell], baseline: str, seed: int) -> Table:
    """Accepted drafts a round over those of the baseline under the same budget."""
    by_key = {cell.key: cell for cell in cells}
    rows = []
    for cell in cells:
        other = by_key.get(cell.key._replace(group=baseline))
        if other is None or cell.key.group == baseline:
            continue
        ratio = accepted_ratio(cell.answers, other.answers, seed=seed)
        rows.append([_name(cell.key), _with_interval(ratio)])
    notes = ["Pooled over the prompts that neither of the two answered in a loop; interval over prompts, paired."]
    return Table(f"Accepted drafts a pass over those of {baseline}", ["drafter", "ratio"], rows, notes)


def _shape_table(cells: Sequence[Cell], seed: int) -> Table | None:
    """Where drafting is easy over where it is hard; None without prompts of both kinds, or without trees."""
    rows = []
    for cell in cells:
        sure = select(cell.answers, lambda answer: answer.category in _SURE and answer.levels > 0)
        unsure = select(cell.answers, lambda answer: answer.category in _UNSURE and answer.levels > 0)
        if not sure or not unsure or all(answer.nodes == answer.levels for answer in cell.answers):
            continue
        depth = ratio_of_means([depth_of(a) for a in sure], [depth_of(a) for a in unsure], seed=seed)
        width = ratio_of_means([width_of(a) for a in sure], [width_of(a) for a in unsure], seed=seed)
        rows.append([_name(cell.key), _with_interval(depth), _with_interval(width)])
    if not rows:
        return None
    columns = ["drafter, budget, temperature, prompts", "depth", "width"]
    title = f"Trees on {' and '.join(sorted(_SURE))} over those on {' and '.join(sorted(_UNSURE))}"
    return Table(title, columns, rows, ["Ratios of means over prompts, with 95 % bootstrap intervals over prompts."])


def _acceptance_cells(found: Figures) -> list[str]:
    return [
        str(found.answers),
        _with_interval(found.first),
        _list(found.positions),
        _list(found.positions_pooled),
        _with_interval(found.tau),
        _NONE if found.tau_pooled is None else f"{found.tau_pooled:.2f}",
    ]


def _shape_cells(found: Figures) -> list[str]:
    return [_value(found.depth), _value(found.width)]


def _cell_data(cell: Cell, seed: int) -> dict[str, Any]:
    return {
        **cell.key._asdict(),
        "figures": asdict(figures(select(cell.answers), seed=seed)),
        "answers": [asdict(answer) for answer in cell.answers],
        "errors": list(cell.errors),
    }


def _error_notes(cells: Sequence[Cell]) -> list[str]:
    failed = sorted({(cell.key.prompts, reason) for cell in cells for reason in cell.errors})
    return [f"{prompts}: some prompts failed with {reason}." for prompts, reason in failed]


def _description(setup: EvaluationSetup) -> dict[str, Any]:
    """The setup without the prompts' texts."""
    return {
        "prompts": {prompts.name: len(prompts.prompts) for prompts in setup.sets},
        "groups": list(setup.groups),
        "budgets": [budget.name for budget in setup.budgets],
        "temperatures": list(setup.temperatures),
        "max_tokens": setup.max_tokens,
        "concurrency": setup.concurrency,
    }


def _sets(cells: Sequence[Cell]) -> list[str]:
    return list(dict.fromkeys(cell.key.prompts for cell in cells))


def _name(key: CellKey) -> str:
    return f"{key.group}, {key.budget}, {key.temperature:g}, {key.prompts}"


def _value(found: Interval | None) -> str:
    return _NONE if found is None else f"{found.value:.2f}"


def _with_interval(found: Interval | None) -> str:
    return _NONE if found is None else f"{found.value:.3f} [{found.low:.3f}, {found.high:.3f}]"


def _list(values: Sequence[float]) -> str:
    return " ".join(f"{value:.2f}" for value in values[:_SHOWN_POSITIONS]) or _NONE
