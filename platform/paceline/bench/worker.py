"""Runs one candidate of a comparison in a process of its own, with its own arithmetic threads.

Two models in one process share its caches, its allocator and its pool of threads; in processes of their own they can
be measured in turns without touching each other.
"""

import multiprocessing
from collections.abc import Callable
from contextlib import suppress
from multiprocessing.connection import Connection
from typing import Any, Self

from paceline.errors import EngineFailedError

_CLOSE = None


class Worker:
    """A process that holds one candidate, whose methods are called by name. Usable as a context manager."""

    def __init__(self, build: Callable[[], object]) -> None:
        """Start and wait until the candidate is built; ``build`` must be picklable."""
        context = multiprocessing.get_context("spawn")
        self._connection, theirs = context.Pipe()
        self._process = context.Process(target=_serve, args=(theirs, build), daemon=True)
        self._process.start()
        theirs.close()
        self._receive()

    def call(self, method: str, *arguments: Any, threads: int) -> Any:
        """Result of a method, run with so many arithmetic threads. Raises EngineFailedError with what went wrong."""
        self._connection.send((method, arguments, threads))
        return self._receive()

    def close(self) -> None:
        """End the process."""
        with suppress(OSError):  # it may have ended by itself
            self._connection.send(_CLOSE)
        self._process.join(10)
        if self._process.is_alive():
            self._process.terminate()
        self._connection.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _receive(self) -> Any:
        try:
            error, result = self._connection.recv()
        except EOFError as ended:
            raise EngineFailedError(f"a measuring process ended with code {self._process.exitcode}") from ended
        if error:
            raise EngineFailedError(error)
        return result


def _serve(connection: Connection, build: Callable[[], object]) -> None:
    import torch  # noqa: PLC0415  # not needed by the parent

    candidate: object | None = None
    request: Any = ("", (), 1)
    while request is not _CLOSE:
        method, arguments, threads = request
        try:
            torch.set_num_threads(threads)
            if candidate is None:
                candidate, result = build(), None
            else:
                result = getattr(candidate, method)(*arguments)
            connection.send(("", result))
        except Exception as error:  # noqa: BLE001  # the process's border: the parent raises it
            connection.send((f"{type(error).__name__}: {error}", None))
        try:
            request = connection.recv()
        except EOFError:  # the parent is gone
            return
