"""The gateway's queue for places on target replicas.

Ray Serve's ``choose_replica`` must not be cancelled: its waiters go on queueing inside Ray and take
slots later. So a few tasks of our own wait there, and each gives what it gets to the first request
that still wants it.
"""

import asyncio
import logging
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Generic, TypeVar

from paceline.errors import OverloadedError, TargetUnavailableError
from paceline.gateway.target_pool import PlaceWish

logger = logging.getLogger(__name__)

Selection = TypeVar("Selection")

Reserve = Callable[[PlaceWish], AbstractAsyncContextManager[Selection]]
Suits = Callable[[PlaceWish, Selection], bool]

_RETRY_AFTER_S = 1.0
_CLOSED = "the gateway is going down"


class Lease(Generic[Selection]):
    """A reserved place. Whoever holds it must call `release` exactly once, whatever happens."""

    def __init__(self, selection: Selection) -> None:
        self.selection = selection
        self.released = asyncio.Event()
        self.settle: Callable[[], Awaitable[None]] | None = None  # runs before the place goes back

    def release(self) -> None:
        """Give the place back; returns at once."""
        self.released.set()


class SlotQueue(Generic[Selection]):
    """Hands out places, first come first served. Used from one asyncio loop."""

    def __init__(
        self,
        reserve: Reserve[Selection],
        *,
        suits: Suits[Selection] = lambda _wish, _selection: True,
        max_taken: int,
        max_reserving: int = 4,
        is_empty: Callable[[], bool] = lambda: False,
        on_change: Callable[[], None] = lambda: None,
        patience_s: float = 30.0,
    ) -> None:
        """Build the queue.

        ``max_taken`` limits waiting requests and places together, ``max_reserving`` the tasks that wait inside
        ``reserve``. A request gives up after ``patience_s`` if there ``is_empty`` of replicas.
        ``on_change`` is called after every change of `num_waiting` or `num_held`.
        """
        self._reserve = reserve
        self._suits = suits
        self._max_taken = max_taken
        self._max_reserving = max_reserving
        self._is_empty = is_empty
        self._on_change = on_change
        self._patience_s = patience_s
        self._is_closed = False
        self._waiters: deque[asyncio.Future[Lease[Selection]]] = deque()
        self._num_reserving = 0
        self._num_held = 0
        self._tasks: set[asyncio.Task[None]] = set()

    @property
    def num_waiting(self) -> int:
        """Requests that wait for a place."""
        return len(self._waiters)

    @property
    def num_held(self) -> int:
        """Places that have not gone back yet."""
        return self._num_held

    @asynccontextmanager
    async def take(self, wish: PlaceWish) -> AsyncIterator[Lease[Selection]]:
        """A place for the length of the block.

        A full queue does not refuse a further attempt of a request that was let in before, because what fills the
        queue may be its own earlier place, which goes back later.

        Raises OverloadedError if the queue is full, TargetUnavailableError if there is no replica or the queue
        is closed.
        """
        if self._is_closed:
            raise TargetUnavailableError(_CLOSED)
        if not wish.resumed and self.num_waiting + self._num_held >= self._max_taken:
            raise OverloadedError("The gateway's queue", _RETRY_AFTER_S)
        lease = await self._wait()
        try:
            yield lease
        finally:
            lease.release()

    async def close(self) -> None:
        """Give back all places; requests that wait for one get TargetUnavailableError."""
        self._is_closed = True
        while (waiter := self._next_waiter()) is not None:
            waiter.set_exception(TargetUnavailableError(_CLOSED))
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _wait(self) -> Lease[Selection]:
        waiter: asyncio.Future[Lease[Selection]] = asyncio.get_running_loop().create_future()
        self._waiters.append(waiter)
        self._on_change()
        self._start_reserving()
        try:
            return await self._be_patient(waiter)
        except BaseException:
            if waiter.done() and not waiter.cancelled() and waiter.exception() is None:
                waiter.result().release()  # cancelled just when the place came
            waiter.cancel()
            raise
        finally:
            if waiter in self._waiters:
                self._waiters.remove(waiter)
                self._on_change()

    async def _be_patient(self, waiter: "asyncio.Future[Lease[Selection]]") -> Lease[Selection]:
        while not waiter.done():
            await asyncio.wait([waiter], timeout=self._patience_s)
            if not waiter.done() and self._is_empty():
                raise TargetUnavailableError("no replica is running")
        return waiter.result()

    def _start_reserving(self) -> None:
        while self._num_reserving < min(self._max_reserving, self.num_waiting):
            self._num_reserving += 1
            task = asyncio.create_task(self._reserve_one())
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _reserve_one(self) -> None:
        reserving = True
        try:
            async with self._reserve(PlaceWish()) as selection:
                self._num_reserving -= 1
                reserving = False
                await self._hand_over(selection)
        except Exception as error:  # the task's border: the request that waits must hear of any failure
            logger.exception("a place on a target replica failed")
            if reserving:
                self._fail_next(TargetUnavailableError(type(error).__name__))
        finally:
            if reserving:
                self._num_reserving -= 1
            self._start_reserving()

    async def _hand_over(self, selection: Selection) -> None:
        waiter = self._next_waiter()
        self._start_reserving()
        if waiter is None:
            return
        lease = Lease(selection)
        self._num_held += 1
        self._on_change()
        waiter.set_result(lease)
        try:
            await lease.released.wait()
            if lease.settle is not None:
                await lease.settle()
        finally:
            self._num_held -= 1
            self._on_change()

    def _next_waiter(self) -> "asyncio.Future[Lease[Selection]] | None":
        while self._waiters:
            waiter = self._waiters.popleft()
            self._on_change()
            if not waiter.done():
                return waiter
        return None

    def _fail_next(self, error: TargetUnavailableError) -> None:
        waiter = self._next_waiter()
        if waiter is not None:
            waiter.set_exception(error)
