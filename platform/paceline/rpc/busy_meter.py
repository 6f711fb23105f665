"""The share of the last second that was spent working."""

from collections import deque


class BusyMeter:
    """Adds up spans of work; times are seconds of one monotonic clock."""

    def __init__(self, window_s: float = 1.0) -> None:
        self._window_s = window_s
        self._spans: deque[tuple[float, float]] = deque()

    def add(self, start: float, end: float) -> None:
        """Note a span of work; spans come in order and do not overlap."""
        self._spans.append((start, end))
        while self._spans and self._spans[0][1] < end - self._window_s:
            self._spans.popleft()

    def share(self, now: float) -> float:
        """Busy share of the window that ends now, 0 to 1. May be called from another thread."""
        since = now - self._window_s
        busy_s = sum(max(0.0, min(end, now) - max(start, since)) for start, end in tuple(self._spans))
        return min(1.0, busy_s / self._window_s)
