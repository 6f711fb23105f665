"""Ctrl-C and SIGTERM as one exception, so that ``with`` blocks clean up."""

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType


class StopRequestedError(BaseException):
    """The user or the system asked the command to end. Not an error of ours, so nothing may swallow it."""


@contextmanager
def stop_on_signals() -> Iterator[None]:
    """Raise StopRequestedError in the block on the first SIGINT or SIGTERM.

    Further ones are ignored, so that the clean-up finishes.
    """
    previous = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    for number in previous:
        signal.signal(number, _request_stop)
    try:
        yield
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)


@contextmanager
def signals_ignored() -> Iterator[None]:
    """Ignore SIGINT and SIGTERM in the block: what they ask for is under way, and must not be cut short."""
    if threading.current_thread() is not threading.main_thread():
        yield  # Python has signal handlers in the main thread only
        return
    previous = {number: signal.signal(number, signal.SIG_IGN) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)


def _request_stop(number: int, frame: FrameType | None) -> None:
    del number, frame
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)
    raise StopRequestedError
