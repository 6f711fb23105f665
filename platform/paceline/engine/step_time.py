"""How long a target pass takes as a function of the tokens in it, learned from the passes of this process."""

from bisect import bisect_left
from collections import deque
from dataclasses import dataclass
from itertools import accumulate
from statistics import median

_WINDOW = 32  # newest passes per bucket that count
_MEMORY = 1000  # passes after which a bucket that was not seen is forgotten: the machine may have changed
_TOKENS_PER_PASS = 32.0  # where nothing was measured: so many further tokens cost as much again as one token alone


@dataclass(frozen=True, slots=True)
class PassTimes:
    """Expected seconds of a pass by the number of its tokens; never falls as tokens are added.

    ``points`` are (tokens, seconds) in rising order. Between them time is linear, beyond them it
    follows the shape of a pass that is bound by memory.
    """

    points: tuple[tuple[float, float], ...] = ()

    def __call__(self, num_tokens: int) -> float:
        """Seconds of a pass over ``num_tokens`` tokens; 0 as long as nothing was measured."""
        if not self.points:
            return 0.0
        place = bisect_left(self.points, (num_tokens, 0.0))
        if place in (0, len(self.points)):
            return _extrapolate(self.points[min(place, len(self.points) - 1)], num_tokens)
        below, above = self.points[place - 1], self.points[place]
        share = (num_tokens - below[0]) / (above[0] - below[0])
        return below[1] + share * (above[1] - below[1])


def _extrapolate(point: tuple[float, float], num_tokens: int) -> float:
    tokens, seconds = point
    return seconds * (_TOKENS_PER_PASS + num_tokens) / (_TOKENS_PER_PASS + tokens)


class PassTimeModel:
    """Medians of the newest passes, by powers of two of their tokens, so that one slow pass changes nothing."""

    def __init__(self) -> None:
        self._buckets: dict[int, deque[tuple[int, float]]] = {}
        self._last_seen: dict[int, int] = {}
        self._num_passes = 0
        self._times = PassTimes()

    @property
    def times(self) -> PassTimes:
        """What is known now; a value of its own that later passes do not change."""
        return self._times

    def observe(self, num_tokens: int, seconds: float) -> None:
        """Learn from one pass; ``seconds`` without any wait for drafts."""
        bucket = num_tokens.bit_length()
        self._buckets.setdefault(bucket, deque(maxlen=_WINDOW)).append((num_tokens, seconds))
        self._num_passes += 1
        self._last_seen[bucket] = self._num_passes
        for old in [name for name, seen in self._last_seen.items() if seen <= self._num_passes - _MEMORY]:
            del self._buckets[old], self._last_seen[old]
        centres = [_centre(self._buckets[name]) for name in sorted(self._buckets)]
        rising = accumulate((seconds for _, seconds in centres), max)
        self._times = PassTimes(tuple(zip((tokens for tokens, _ in centres), rising, strict=True)))


def _centre(passes: deque[tuple[int, float]]) -> tuple[float, float]:
    return sum(tokens for tokens, _ in passes) / len(passes), median(seconds for _, seconds in passes)
