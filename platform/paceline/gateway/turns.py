"""Answers that lost their target go on one after the other, so that the one that kills targets dies alone."""

import asyncio
import contextlib
import weakref
from collections.abc import AsyncIterator, Callable

_PATIENCE_S = 3.0


class Turns:
    """One turn at a time on each replica. Used from one asyncio loop.

    All answers of a replica that died move at once, perhaps to the same replica, and one of them may have killed it.
    If each goes on only when the one before has brought a token, the next death tells which one it was.
    """

    def __init__(self, *, patience_s: float = _PATIENCE_S) -> None:
        """Nobody waits for a turn longer than ``patience_s``."""
        self._patience_s = patience_s
        self._locks: weakref.WeakValueDictionary[str, asyncio.Lock] = weakref.WeakValueDictionary()

    @contextlib.asynccontextmanager
    async def turn(self, replica_id: str) -> AsyncIterator[Callable[[], None]]:
        """Wait for a turn on a replica; it ends with the block, or with a call of what is yielded."""
        lock = self._locks.setdefault(replica_id, asyncio.Lock())
        mine = await self._take(lock)

        def end() -> None:
            nonlocal mine
            if mine:
                mine = False
                lock.release()

        try:
            yield end
        finally:
            end()

    async def _take(self, lock: asyncio.Lock) -> bool:
        try:
            async with asyncio.timeout(self._patience_s):
                return await lock.acquire()
        except TimeoutError:
            return False
