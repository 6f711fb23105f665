"""Peak memory of a group of processes."""

import contextlib
import threading
from collections.abc import Callable, Iterable
from types import TracebackType
from typing import Self

import psutil

_SAMPLE_S = 0.25


class MemoryWatch:
    """Samples the sum of resident memory while the ``with`` block runs.

    Pages that processes share count once per process, so the true figure is lower.
    """

    def __init__(self, processes: Callable[[], Iterable[psutil.Process]]) -> None:
        """``processes`` is asked at every sample."""
        self._processes = processes
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._run, name="memory-watch", daemon=True)
        self.peak_bytes = 0

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._done.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._done.wait(_SAMPLE_S):
            with contextlib.suppress(psutil.Error):  # the list is as short-lived as the processes on it
                self._sample(list(self._processes()))

    def _sample(self, processes: list[psutil.Process]) -> None:
        total = 0
        for process in processes:
            with contextlib.suppress(psutil.Error):  # it has ended meanwhile
                total += process.memory_info().rss
        self.peak_bytes = max(self.peak_bytes, total)
