"""The gateway's queue for places on target replicas.

A fleet's own way to choose a replica may neither be cancelled nor be fair: whoever waits there has left the
gateway's hands. So a few tasks of the queue wait there, and each gives what it gets to the first request that
still wants it (`waiting_line` says which that is). A task that no request needs any more is withdrawn.
"""

import asyncio
import contextvars
import logging
import random
import threading
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Generic, NamedTuple, NoReturn, TypeVar

from paceline.errors import OverloadedError, PacelineError, TargetUnavailableError
from paceline.gateway.place_rate import PlaceRate
from paceline.gateway.target_pool import PlaceWish
from paceline.gateway.waiting_line import WaitingLine
from paceline.rpc.status import cancelled_from_within

logger = logging.getLogger(__name__)

Selection = TypeVar("Selection")

Reserve = Callable[[PlaceWish, threading.Event], AbstractAsyncContextManager[Selection]]
"""Waits for a place and holds it for the length of the block. Once the event is set, perhaps by another thread, the
place is not wanted any more: the wait may then end with CancelledError."""
Suits = Callable[[PlaceWish, Selection], bool]

_QUEUE = "The gateway's queue"
_CLOSED = "the gateway is going down"
_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 0.05, 1.0  # before a task asks again after a place that suited nobody
_SHORTEST_RETRY_S, _LONGEST_RETRY_S = 1.0, 60.0  # OpenAI's clients take no advice beyond a minute
_RETRY_SPREAD = 0.5  # so that whoever was refused together does not come back together


class _Kind(NamedTuple):
    """What a wish says about the replica; one reservation serves any request of its kind."""

    exclude: frozenset[str]
    fingerprint: str | None


class Lease(Generic[Selection]):
    """A reserved place. Whoever holds it must call `release` exactly once, whatever happens."""

    def __init__(self, selection: Selection, waited_s: float = 0.0) -> None:
        self.selection = selection
        self.waited_s = waited_s  # time in the queue
        self.released = asyncio.Event()
        self.settle: Callable[[], Awaitable[None]] | None = None  # runs before the place goes back

    def release(self) -> None:
        """Give the place back; returns at once."""
        self.released.set()


_Waiter = asyncio.Future[Lease[Selection]]


class PlaceQueue(Generic[Selection]):
    """Hands out places. Used from one asyncio loop, whose time it goes by."""

    def __init__(
        self,
        reserve: Reserve[Selection],
        *,
        suits: Suits[Selection] = lambda _wish, _selection: True,
        max_taken: int,
        max_wait_s: float,
        max_reserving: int = 4,
        is_empty: Callable[[], bool] = lambda: False,
        on_change: Callable[[], None] = lambda: None,
        on_shed: Callable[[str], None] = lambda _reason: None,
    ) -> None:
        """Build the queue.

        ``max_taken`` limits waiting requests and places together, ``max_reserving`` the tasks that wait inside
        ``reserve`` for one kind of wish. Whether the fleet ``is_empty`` of replicas decides which error a request
        gets that has waited in vain. ``on_change`` is called after every change of `num_waiting` or `num_held`,
        ``on_shed`` with a reason for every request that is refused: "full", "displaced", "expected_wait", "waited".
        """
        self.max_wait_s = max_wait_s  # longest wait of requests that come from now on
        self._reserve = reserve
        self._suits = suits
        self._max_taken = max_taken
        self._max_reserving = max_reserving
        self._is_empty = is_empty
        self._on_change = on_change
        self._on_shed = on_shed
        self._is_closed = False
        self._line: WaitingLine[_Waiter[Selection]] = WaitingLine()
        self._kinds: Counter[_Kind] = Counter()  # of requests that wait
        self._under_way: dict[_Kind, set[threading.Event]] = {}  # reservations that may still be withdrawn
        self._rate = PlaceRate()
        self._num_held = 0
        self._tasks: set[asyncio.Task[None]] = set()

    @property
    def num_waiting(self) -> int:
        """Requests that wait for a place."""
        return len(self._line)

    @property
    def num_held(self) -> int:
        """Places that have not gone back yet."""
        return self._num_held

    @asynccontextmanager
    async def take(self, wish: PlaceWish) -> AsyncIterator[Lease[Selection]]:
        """A place for the length of the block.

        A resumed request is never refused and waits as long as its caller lets it. A request whose deadline has
        passed gets no place; to end its wait is the caller's part.

        Raises OverloadedError where the queue is full, where the request would wait too long, or where it has;
        TargetUnavailableError where it has and there is no replica, where reserving failed, or the queue is closed.
        """
        if self._is_closed:
            raise TargetUnavailableError(_CLOSED)
        if not wish.resumed:
            self._admit(wish)
        lease = await self._wait(wish)
        try:
            yield lease
        finally:
            lease.release()

    async def close(self) -> None:
        """Give back all places; requests that wait for one get TargetUnavailableError."""
        self._is_closed = True
        while (waiter := self._line.first(lambda _wish: True)) is not None:
            self._dismiss(waiter, TargetUnavailableError(_CLOSED))
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _admit(self, wish: PlaceWish) -> None:
        """Refuse a new request that had better not wait; make room for it where others had better not."""
        now = _now()
        if self._line and not self._is_empty():
            limit_s = self.max_wait_s if wish.deadline is None else min(self.max_wait_s, wish.deadline - now)
            wait_s = self._rate.wait_s(self._line.num_before(wish), now)
            if wait_s is not None and wait_s > limit_s:
                raise self._shed("expected_wait", wait_s - limit_s)
        if self.num_waiting + self._num_held < self._max_taken:
            return
        last = self._line.last_behind(wish)
        if last is None:
            raise self._shed("full", self._half_time_s())
        self._dismiss(last, self._shed("displaced", self._half_time_s()))

    def _shed(self, reason: str, retry_after_s: float) -> OverloadedError:
        self._on_shed(reason)
        spread_s = retry_after_s * (1 + _RETRY_SPREAD * random.random())
        return OverloadedError(_QUEUE, round(min(max(spread_s, _SHORTEST_RETRY_S), _LONGEST_RETRY_S), 1))

    def _half_time_s(self) -> float:
        """Time in which half of the line will be served, as far as is known."""
        return self._rate.wait_s(self.num_waiting // 2, _now()) or _SHORTEST_RETRY_S

    async def _wait(self, wish: PlaceWish) -> Lease[Selection]:
        waiter: _Waiter[Selection] = asyncio.get_running_loop().create_future()
        # Resumed answers may wait for one certain kind of replica while the fleet has room for all others.
        if not wish.resumed and not self._line.num_new:
            self._rate.waiting_began(_now())
        self._line.add(wish, waiter)
        self._kinds[_kind(wish)] += 1
        self._changed()
        started = _now()
        try:
            await asyncio.wait([waiter], timeout=None if wish.resumed else self.max_wait_s)
            if not waiter.done():
                self._give_up()
            lease = waiter.result()
            lease.waited_s = _now() - started
        except BaseException:
            if waiter.done() and not waiter.cancelled() and waiter.exception() is None:
                waiter.result().release()  # cancelled just when the place came
            raise
        finally:
            self._left(self._line.discard(waiter))
        return lease

    def _give_up(self) -> NoReturn:
        if self._is_empty():
            raise TargetUnavailableError("no replica is running")
        raise self._shed("waited", self._half_time_s())

    def _dismiss(self, waiter: _Waiter[Selection], error: PacelineError) -> None:
        waiter.set_exception(error)
        self._left(self._line.discard(waiter))

    def _left(self, wish: PlaceWish | None) -> None:
        """A request is in the line no longer; None: it has not been for a while."""
        if wish is None:
            return
        self._kinds[_kind(wish)] -= 1
        if not self._line.num_new:
            self._rate.waiting_ended()
        self._changed()

    def _changed(self) -> None:
        self._on_change()
        self._match_reservations()

    def _match_reservations(self) -> None:
        """Have as many reservations under way for each kind as requests wait, up to the limit."""
        for kind in self._kinds.keys() | self._under_way.keys():
            wanted = 0 if self._is_closed else min(self._kinds[kind], self._max_reserving)
            under_way = self._under_way.setdefault(kind, set())
            while len(under_way) > wanted:
                under_way.pop().set()
            while len(under_way) < wanted:
                withdrawn = threading.Event()
                under_way.add(withdrawn)
                # In no request's context: Ray cancels what a request began when its client goes away, and this place
                # may be for another one.
                task = asyncio.create_task(self._reserve_one(kind, withdrawn), context=contextvars.Context())
                self._tasks.add(task)
                task.add_done_callback(self._tasks.discard)
            if not under_way:
                del self._under_way[kind]
            if not self._kinds[kind]:
                del self._kinds[kind]

    async def _reserve_one(self, kind: _Kind, withdrawn: threading.Event) -> None:
        """Bring one place to a request, however often it takes."""
        wish = PlaceWish(exclude=kind.exclude, fingerprint=kind.fingerprint)
        pause_s = _FIRST_PAUSE_S
        while not withdrawn.is_set():
            try:
                async with self._reserve(wish, withdrawn) as selection:
                    if await self._serve_first(selection, kind, withdrawn):
                        return
            except asyncio.CancelledError:
                if not cancelled_from_within():
                    raise
                if not withdrawn.is_set():
                    self._fail_one(kind, "the reservation was cancelled")
            except Exception as error:  # the task's border: a request that waits must hear of any failure
                logger.exception("a place on a target replica failed")
                if not withdrawn.is_set():
                    self._fail_one(kind, type(error).__name__)
            if not withdrawn.is_set():
                await asyncio.sleep(pause_s)
                pause_s = min(2 * pause_s, _LONGEST_PAUSE_S)

    async def _serve_first(self, selection: Selection, kind: _Kind, withdrawn: threading.Event) -> bool:
        """Give a place to the first request that it suits, and wait until it is given back; False: it suits none."""
        now = _now()
        waiter = self._line.first(
            lambda wish: (wish.deadline is None or wish.deadline > now) and self._suits(wish, selection)
        )
        if waiter is None:
            return False
        wish = self._line.serve(waiter)
        self._rate.place_came(now)
        self._num_held += 1
        lease = Lease(selection)
        waiter.set_result(lease)
        # Neither this reservation nor its place is under way any more; the next may start.
        self._under_way.get(kind, set()).discard(withdrawn)
        withdrawn.set()
        self._left(wish)
        try:
            await lease.released.wait()
            if lease.settle is not None:
                await lease.settle()
        finally:
            self._num_held -= 1
            self._line.give_back(wish.tenant)
            self._on_change()
        return True

    def _fail_one(self, kind: _Kind, detail: str) -> None:
        """A new request hears of the failure at once; a resumed one waits for better times."""
        waiter = self._line.first(lambda wish: not wish.resumed and _kind(wish) == kind)
        if waiter is not None:
            self._dismiss(waiter, TargetUnavailableError(detail))


def _kind(wish: PlaceWish) -> _Kind:
    return _Kind(wish.exclude, wish.fingerprint)


def _now() -> float:
    return asyncio.get_running_loop().time()
