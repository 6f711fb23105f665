"""How long a drafter group takes to answer, by the size of what it is asked for."""

from collections import deque
from typing import NamedTuple

_WINDOW = 32  # newest replies per bucket that count
_DEVIATIONS = 2.0
_ENOUGH_TO_TRIM = 10  # from so many replies on the slowest is left out: one hiccup is no habit


class ReplyTime(NamedTuple):
    """When a reply can be expected, in seconds after its request."""

    mean_s: float
    latest_s: float  # mean and two deviations


class ReplyTimes:
    """Mean and deviation of the newest replies, by powers of two of the draft tokens asked for in one message."""

    def __init__(self) -> None:
        self._buckets: dict[int, deque[float]] = {}

    def note(self, size: int, seconds: float) -> None:
        """Learn from one reply; ``size`` is that of the message which it answers, in draft tokens."""
        self._buckets.setdefault(size.bit_length(), deque(maxlen=_WINDOW)).append(seconds)

    def expected(self, size: int) -> ReplyTime | None:
        """What to expect for a message of ``size`` draft tokens; None before the first reply.

        A size that was never seen is taken for the nearest one that was, the larger of two.
        """
        if not self._buckets:
            return None
        wanted = size.bit_length()
        nearest = min(self._buckets, key=lambda bucket: (abs(bucket - wanted), -bucket))
        times = sorted(self._buckets[nearest])
        if len(times) >= _ENOUGH_TO_TRIM:
            times.pop()
        mean = sum(times) / len(times)
        variance = sum((seconds - mean) ** 2 for seconds in times) / len(times)
        return ReplyTime(mean, mean + _DEVIATIONS * variance**0.5)
