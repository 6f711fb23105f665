"""How acceptance grows with the data: one method trained on several amounts of it."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from paceline.bench.report import Table
from paceline.training.acceptance_figures import figures, select
from paceline.training.evaluate import Cell
from paceline.training.record import TrainingRecord

_FEWEST_POINTS = 3  # two points always lie on a line
_MORE = (2, 10)  # times the data


@dataclass(frozen=True, slots=True)
class Trend:
    """``value = level + slope * log10(tokens)``, least squares."""

    level: float
    slope: float  # per tenfold data
    residual: float  # standard deviation of the points about the line

    def at(self, tokens: float) -> float:
        """What the line says for so many tokens."""
        return self.level + self.slope * math.log10(tokens)


def trend(points: Sequence[tuple[float, float]]) -> Trend:
    """The line through (tokens, value) points, at least two with different tokens."""
    logs = np.log10([tokens for tokens, _ in points])
    values = np.array([value for _, value in points], dtype=np.float64)
    slope, level = np.polyfit(logs, values, 1)
    residual = float(np.sqrt(np.mean((values - level - slope * logs) ** 2)))
    return Trend(float(level), float(slope), residual)


def scaling_table(cells: Sequence[Cell], records: Mapping[str, TrainingRecord]) -> Table | None:
    """First position and tau against tokens of training data; None unless one method has three amounts of data.

    Groups belong together whose records name the same method and target. Cells of the first set of prompts, budget and
    temperature count.
    """
    rows: list[list[str]] = []
    notes: list[str] = []
    first = cells[0].key if cells else None
    own = [cell for cell in cells if first and cell.key._replace(group=first.group) == first]
    for method in sorted({record.method for record in records.values()}):
        points = sorted(_points(own, records, method))
        if len({tokens for tokens, *_ in points}) < _FEWEST_POINTS:
            continue
        rows += [[f"{method}: {group}", f"{tokens}", f"{a1:.3f}", f"{tau:.3f}"] for tokens, a1, tau, group in points]
        line = trend([(tokens, a1) for tokens, a1, _, _ in points])
        most = points[-1][0]
        outlook = ", ".join(f"{times} times the data would give {line.at(times * most):.3f}" for times in _MORE)
        notes.append(
            f"{method}: a_1 grows by {line.slope:.3f} per tenfold data (points lie {line.residual:.3f} off the line); "
            f"by the line {outlook}."
        )
    if not rows:
        return None
    return Table("Acceptance by amount of data", ["drafter", "tokens of answers", "a_1", "tau"], rows, notes)


def _points(
    cells: Sequence[Cell], records: Mapping[str, TrainingRecord], method: str
) -> list[tuple[int, float, float, str]]:
    """(tokens, a_1, tau, group) of the groups of one method."""
    points = []
    for cell in cells:
        record = records.get(cell.key.group)
        found = figures(select(cell.answers))
        if record and record.method == method and found.first and found.tau:
            points.append((record.answer_tokens, found.first.value, found.tau.value, cell.key.group))
    return points
