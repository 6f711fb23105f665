"""Tokens per second over a short window."""

import time
from collections import deque
from collections.abc import Callable

_WINDOW_S = 5.0


class ThroughputMeter:
    """Counts tokens of the last few seconds; read from another thread than it is written."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._events: deque[tuple[float, int]] = deque()

    def add(self, num_tokens: int) -> None:
        """Count tokens committed now."""
        now = self._clock()
        self._events.append((now, num_tokens))
        while self._events and self._events[0][0] < now - _WINDOW_S:
            self._events.popleft()

    def rate(self) -> float:
        """Tokens per second over the window; 0 when nothing was committed in it."""
        since = self._clock() - _WINDOW_S
        return sum(count for at, count in tuple(self._events) if at >= since) / _WINDOW_S
