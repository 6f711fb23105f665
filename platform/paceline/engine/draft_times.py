"""How long a drafter of this process keeps its target's thread, by the levels that it drafts."""

from collections import deque
from statistics import fmean, linear_regression, median

_WINDOW = 32  # newest rounds per number of levels that count


class DraftTimes:
    """A constant and a time per level, fitted to the medians of the newest rounds."""

    def __init__(self) -> None:
        self._rounds: dict[int, deque[float]] = {}
        self._constant, self._per_level = 0.0, 0.0

    @property
    def measured(self) -> bool:
        """Whether there was any round."""
        return bool(self._rounds)

    def note(self, levels: int, seconds: float) -> None:
        """Learn from one round in which the deepest tree had so many levels, at least 1."""
        self._rounds.setdefault(levels, deque(maxlen=_WINDOW)).append(seconds)
        self._constant, self._per_level = _fit({found: median(times) for found, times in self._rounds.items()})

    def __call__(self, levels: int) -> float:
        """Seconds to expect for ``levels``; 0 for none, and before the first round."""
        return self._constant + self._per_level * levels if levels else 0.0


def _fit(seconds: dict[int, float]) -> tuple[float, float]:
    """(constant, time per level), neither below zero. From one number of levels alone: all of it by the level."""
    levels, times = list(seconds), list(seconds.values())
    if len(levels) == 1:
        return 0.0, times[0] / levels[0]
    per_level, constant = linear_regression(levels, times)
    if per_level < 0.0:
        return fmean(times), 0.0
    if constant < 0.0:
        return 0.0, sum(times) / sum(levels)
    return constant, per_level
