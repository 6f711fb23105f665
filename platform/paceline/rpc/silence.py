"""Notices that the other end of a stream has fallen silent."""

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager

_STOOD_STILL_S = 1.0  # a timer that is so late was held up by its own process


class SilenceWatch:
    """Calls back once when a reader has waited ``limit_s`` for a message. Used on one asyncio loop.

    Only waiting counts: neither the time in which the reader does something else, nor that in which its whole
    process stood still, when messages may have arrived unread.
    """

    def __init__(self, limit_s: float, on_silence: Callable[[], None]) -> None:
        self._limit_s = limit_s
        self._on_silence = on_silence
        self._loop = asyncio.get_running_loop()
        self._waiting_since = self._loop.time()
        self._is_reading = True
        self._timer = self._loop.call_later(limit_s, self._check)

    @contextmanager
    def away(self) -> Iterator[None]:
        """A message has come, and the reader does not wait for the next one while the block runs."""
        self._is_reading = False
        try:
            yield
        finally:
            self.heard()
            self._is_reading = True

    def heard(self) -> None:
        """A message has come."""
        self._waiting_since = self._loop.time()

    def stop(self) -> None:
        """Watch no longer."""
        self._timer.cancel()

    def _check(self) -> None:
        now = self._loop.time()
        if now - self._timer.when() > _STOOD_STILL_S or not self._is_reading:
            self._waiting_since = now
        left_s = self._waiting_since + self._limit_s - now
        if left_s <= 0:
            self._on_silence()
        else:
            self._timer = self._loop.call_later(left_s, self._check)
