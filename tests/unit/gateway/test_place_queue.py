"""The queue over a scripted fleet, in virtual time: what happens when, never how fast this machine is."""

import asyncio
import contextlib
import contextvars
import threading
from contextlib import asynccontextmanager
from weakref import WeakKeyDictionary

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import virtual_time
from paceline.core.priority import Priority
from paceline.errors import OverloadedError, TargetUnavailableError
from paceline.gateway.place_queue import PlaceQueue
from paceline.gateway.target_pool import PlaceWish

_TAKING = WeakKeyDictionary()  # a context manager that nobody refers to would end


class Places:
    """A fleet: free places by replica. It chooses an excluded replica only where no other has room."""

    def __init__(self, **free: int) -> None:
        self.free = free
        self.held: list[str] = []
        self.waiting = 0
        self.asked: list[PlaceWish] = []
        self.failures: list[BaseException] = []
        self._changed = asyncio.Condition()

    @asynccontextmanager
    async def reserve(self, wish: PlaceWish, withdrawn: threading.Event):
        self.asked.append(wish)
        if self.failures:
            raise self.failures.pop()
        replica = await self._choose(wish, withdrawn)
        self.held.append(replica)
        try:
            yield replica
        finally:
            self.held.remove(replica)
            await self.add(replica)

    async def add(self, replica: str, number: int = 1) -> None:
        self.free[replica] = self.free.get(replica, 0) + number
        await self.look_again()

    async def look_again(self) -> None:
        async with self._changed:
            self._changed.notify_all()

    async def _choose(self, wish: PlaceWish, withdrawn: threading.Event) -> str:
        self.waiting += 1
        try:
            async with self._changed:
                while True:
                    if withdrawn.is_set():
                        raise asyncio.CancelledError
                    usable = [name for name, number in self.free.items() if number and name not in wish.exclude]
                    if usable := usable or [name for name, number in self.free.items() if number]:
                        self.free[usable[0]] -= 1
                        return usable[0]
                    await self._changed.wait()
        finally:
            self.waiting -= 1


def _queue(places: Places, **options) -> PlaceQueue[str]:
    defaults = {
        "suits": lambda wish, replica: replica not in wish.exclude,
        "max_taken": 100,
        "max_wait_s": 30.0,
        "max_reserving": 2,
    }
    return PlaceQueue(places.reserve, **(defaults | options))


async def _settle() -> None:
    for _ in range(40):
        await asyncio.sleep(0)


def _enter(queue: PlaceQueue[str], **wish) -> asyncio.Task:
    """A request that keeps its place until its lease is released."""
    taking = queue.take(PlaceWish(**wish))
    task = asyncio.create_task(taking.__aenter__())
    _TAKING[task] = taking
    return task


async def _cancel(*tasks: asyncio.Task) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


def in_virtual_time(test):
    """The loop's time passes at once."""

    def run() -> None:
        virtual_time.run(test())

    run.__name__, run.__doc__ = test.__name__, test.__doc__
    return run


async def test_a_reservation_belongs_to_no_request():
    """It is made in nobody's context: the fleet cancels what a request began when that request's client goes away."""
    asker = contextvars.ContextVar("asker", default="nobody")
    found = []

    @asynccontextmanager
    async def reserve(wish: PlaceWish, withdrawn: threading.Event):
        found.append(asker.get())
        yield "a"

    queue = PlaceQueue(reserve, suits=lambda wish, replica: True, max_taken=10, max_wait_s=30.0, max_reserving=2)
    asker.set("a request")
    async with queue.take(PlaceWish()) as lease:
        assert lease.selection == "a"

    assert found == ["nobody"]


async def test_requests_are_served_in_the_order_of_their_arrival():
    """First come, first served, whatever the number of tasks that wait inside the fleet."""
    places = Places(a=1)
    queue = _queue(places)
    order = []

    async def request(name: int) -> None:
        async with queue.take(PlaceWish()):
            order.append(name)
            await asyncio.sleep(0)

    await asyncio.gather(*(request(name) for name in range(10)))

    assert order == list(range(10))


async def test_few_tasks_wait_inside_the_fleet():
    """However many requests wait, only max_reserving of them are known to the fleet."""
    places = Places()
    queue = _queue(places, max_reserving=3)
    waiting = [_enter(queue) for _ in range(20)]
    await _settle()

    assert places.waiting == 3
    assert queue.num_waiting == 20

    await _cancel(*waiting)
    await queue.close()


async def test_a_cancelled_request_leaves_its_place_to_the_next():
    """The reservation that was under way for a cancelled request serves the one behind it."""
    places = Places()
    queue = _queue(places, max_reserving=1)
    first = _enter(queue)
    await _settle()
    second = _enter(queue)
    first.cancel()
    await _settle()
    assert queue.num_waiting == 1
    assert len(places.asked) == 1

    await places.add("a")
    lease = await second

    assert lease.selection == "a"
    lease.release()
    await _settle()
    assert places.held == []


async def test_requests_that_give_up_leave_no_phantom_load():
    """Six clients wait for a full fleet and go: neither the queue nor the fleet counts anyone afterwards."""
    places = Places(a=1)
    queue = _queue(places, max_reserving=4)
    async with queue.take(PlaceWish()):
        clients = [_enter(queue) for _ in range(6)]
        await _settle()
        assert (queue.num_waiting, places.waiting) == (6, 4)

        await _cancel(*clients)
        await places.look_again()
        await _settle()

        assert (queue.num_waiting, places.waiting) == (0, 0)
        assert places.held == ["a"]


async def test_a_place_that_nobody_wants_any_more_goes_back_at_once():
    """A place that comes just as its last request goes is given back."""
    places = Places()
    queue = _queue(places)
    only = _enter(queue)
    await _settle()
    adding = asyncio.create_task(places.add("a"))
    await asyncio.sleep(0)  # the fleet has given the place, the queue does not have it yet
    only.cancel()
    await asyncio.gather(adding, only, return_exceptions=True)
    await _settle()

    assert places.held == []
    assert places.free == {"a": 1}
    assert (queue.num_waiting, queue.num_held) == (0, 0)


async def test_a_request_cancelled_as_its_place_comes_gives_it_back():
    """Cancellation between the hand-over and the wake-up loses no place."""
    places = Places(a=1)
    queue = _queue(places)
    request = _enter(queue)
    while not queue.num_held:  # noqa: ASYNC110  # cancelled between two turns of the loop, so no event will do
        await asyncio.sleep(0)
    request.cancel()
    with pytest.raises(asyncio.CancelledError):
        await request
    await _settle()

    assert places.held == []


@in_virtual_time
async def test_a_place_goes_back_after_what_must_happen_first():
    """The settling of a lease runs while the place is still reserved, and survives the request's cancellation."""
    places = Places(a=1)
    queue = _queue(places)
    held_while_settling = []

    async def settle() -> None:
        await asyncio.sleep(1)
        held_while_settling.append(list(places.held))

    async def request() -> None:
        async with queue.take(PlaceWish()) as lease:
            lease.settle = settle
            await asyncio.sleep(10)

    task = asyncio.create_task(request())
    await _settle()
    await _cancel(task)
    await asyncio.sleep(2)

    assert held_while_settling == [["a"]]
    assert places.held == []


async def test_a_full_queue_refuses():
    """Beyond max_taken waiting and running requests the queue says so at once."""
    shed = []
    queue = _queue(Places(a=1), max_taken=2, on_shed=shed.append)
    async with queue.take(PlaceWish()):
        waiting = _enter(queue)
        await _settle()

        with pytest.raises(OverloadedError) as refusal:
            await _enter(queue)

        assert 1 <= refusal.value.retry_after_s <= 60
        assert shed == ["full"]
        await _cancel(waiting)


@pytest.mark.parametrize(
    ("first", "second"),
    [({"priority": Priority.LOW}, {}), ({"tenant": "many"}, {"tenant": "one"})],
    ids=["priority", "tenant"],
)
async def test_a_full_queue_gives_up_its_last_for_one_that_goes_before_it(first, second):
    """Neither unimportant requests nor those of one busy tenant can lock the others out."""
    shed = []
    places = Places()
    queue = _queue(places, max_taken=3, on_shed=shed.append)
    waiting = [_enter(queue, **first) for _ in range(3)]
    await _settle()

    newcomer = _enter(queue, **second)
    await _settle()
    with pytest.raises(OverloadedError):
        await waiting[-1]
    await places.add("a", 2)

    assert (await newcomer).selection == "a"
    assert shed == ["displaced"]
    assert queue.num_waiting == 1
    await _cancel(*waiting)
    await queue.close()


@in_virtual_time
async def test_a_request_that_would_wait_too_long_is_refused_at_once():
    """One place a second and twenty requests ahead: the next would wait longer than 15 s and need not try."""
    shed = []
    queue = _queue(Places(a=1), max_wait_s=15.0, on_shed=shed.append)

    async def request(**wish) -> None:
        async with queue.take(PlaceWish(**wish)):
            await asyncio.sleep(1)

    running = [asyncio.create_task(request()) for _ in range(24)]
    await asyncio.sleep(3.5)
    assert queue.num_waiting == 20

    with pytest.raises(OverloadedError) as refusal:
        await _enter(queue)
    assert refusal.value.retry_after_s < 8
    with pytest.raises(OverloadedError) as refusal:
        await _enter(queue, deadline=asyncio.get_running_loop().time() + 5)
    assert refusal.value.retry_after_s > 10
    assert shed == ["expected_wait"] * 2
    await asyncio.gather(request(tenant="another"), request(priority=Priority.HIGH), request(resumed=True))
    await _cancel(*running)


@in_virtual_time
async def test_a_burst_after_a_rest_is_taken_in():
    """What was measured before the fleet was idle says nothing about the places that it has now."""
    shed = []
    places = Places(a=1)
    queue = _queue(places, on_shed=shed.append, max_wait_s=10.0)

    async def request(length_s: float) -> None:
        async with queue.take(PlaceWish()):
            await asyncio.sleep(length_s)

    await asyncio.gather(*(request(2.0) for _ in range(5)))
    await asyncio.sleep(3)
    await places.add("a", 49)

    await asyncio.gather(*(request(5.0) for _ in range(90)))

    assert shed == []


@in_virtual_time
async def test_an_answer_that_waits_for_a_certain_replica_turns_no_new_request_away():
    """A fleet with room is no slow one, however seldom requests come while the answer waits."""
    shed = []
    queue = _queue(Places(a=1), on_shed=shed.append)
    waiting = _enter(queue, resumed=True, exclude=frozenset("a"))
    await asyncio.sleep(1)

    for _ in range(6):
        async with queue.take(PlaceWish()):
            pass
        await asyncio.sleep(60)

    assert (shed, queue.num_waiting) == ([], 1)
    await _cancel(waiting)


@in_virtual_time
async def test_no_request_waits_longer_than_the_limit():
    """Where the estimate was wrong the limit ends the wait; a new limit holds for requests that come from then on."""
    shed = []
    queue = _queue(Places(), max_wait_s=20.0, on_shed=shed.append)
    before = _enter(queue)
    await asyncio.sleep(1)
    queue.max_wait_s = 5.0
    after = _enter(queue)

    await asyncio.sleep(5.1)
    assert (before.done(), after.done()) == (False, True)
    await asyncio.sleep(14)

    for request in (before, after):
        with pytest.raises(OverloadedError):
            await request
    assert shed == ["waited"] * 2
    assert queue.num_waiting == 0


@in_virtual_time
async def test_requests_wait_for_targets_that_are_being_replaced():
    """An empty fleet is worth waiting for up to the limit; what comes too late for a request is an error of its own."""
    places = Places()
    queue = _queue(places, is_empty=lambda: not places.free)
    early = _enter(queue)
    await asyncio.sleep(20)
    late = _enter(queue)
    await asyncio.sleep(11)
    await places.add("a")

    with pytest.raises(TargetUnavailableError, match="no replica is running"):
        await early
    assert (await late).selection == "a"
    await queue.close()


@in_virtual_time
async def test_a_resumed_request_waits_as_long_as_its_caller_lets_it():
    """An answer that has begun is not given up because its only target takes a minute to come back."""
    places = Places()
    queue = _queue(places, max_taken=1, is_empty=lambda: not places.free)
    resumed = _enter(queue, resumed=True)
    await asyncio.sleep(60)
    await places.add("b")

    assert (await resumed).selection == "b"
    await queue.close()


@in_virtual_time
async def test_a_request_that_is_out_of_time_takes_no_place():
    """Its caller is about to end it; the place goes to the next."""
    places = Places()
    queue = _queue(places)
    late = _enter(queue, deadline=1.0)
    await asyncio.sleep(2)
    other = _enter(queue)
    await places.add("a")

    assert (await other).selection == "a"
    assert not late.done()
    await _cancel(late)
    await queue.close()


@in_virtual_time
async def test_a_request_that_avoids_a_replica_neither_blocks_others_nor_starves():
    """Places that do not suit a resumed request go to those behind it, and the first that suits is its own."""
    places = Places(bad=2)
    queue = _queue(places, max_reserving=2)
    avoiding = [_enter(queue, resumed=True, exclude=frozenset({"bad"})) for _ in range(3)]
    await asyncio.sleep(1)
    others = [_enter(queue) for _ in range(2)]
    await asyncio.sleep(2)

    assert [(await other).selection for other in others] == ["bad", "bad"]
    later = _enter(queue)
    await asyncio.sleep(1)
    await places.add("good", 3)
    assert [(await request).selection for request in avoiding] == ["good"] * 3
    assert not later.done()
    await _cancel(later)
    await queue.close()


@in_virtual_time
async def test_places_are_asked_for_by_kind_of_wish():
    """Room on the replica that a request avoids does not hide the place that comes up on another."""
    places = Places(bad=5)
    queue = _queue(places)
    avoiding = [_enter(queue, exclude=frozenset({"bad"})) for _ in range(2)]
    await asyncio.sleep(1)
    await places.add("good", 2)
    other = _enter(queue)
    await asyncio.sleep(2)

    assert [(await request).selection for request in avoiding] == ["good"] * 2
    assert (await other).selection == "bad"
    await queue.close()


@in_virtual_time
async def test_a_place_that_suits_nobody_is_not_asked_for_in_a_loop():
    """Between two such places there is a growing pause; the place itself is free meanwhile."""
    places = Places(bad=1)
    queue = _queue(places)
    avoiding = _enter(queue, resumed=True, exclude=frozenset({"bad"}))
    await asyncio.sleep(10)

    assert 5 < len(places.asked) < 20
    assert places.free == {"bad": 1}
    await _cancel(avoiding)
    await queue.close()


@in_virtual_time
async def test_a_failed_reservation_fails_one_new_request():
    """An error of the fleet reaches a request that waits; a resumed one outlives it, and the queue goes on."""
    places = Places(a=1)
    places.failures = [RuntimeError("the router is gone"), asyncio.CancelledError()]
    queue = _queue(places, max_reserving=1)

    resumed, new, other = _enter(queue, resumed=True), _enter(queue), _enter(queue)
    with pytest.raises(TargetUnavailableError, match="was cancelled"):
        await new
    with pytest.raises(TargetUnavailableError, match="RuntimeError"):
        await other
    assert (await resumed).selection == "a"
    await queue.close()


async def test_every_change_is_told():
    """Whoever shows the numbers has the right ones when the queue is idle again."""
    shown = []
    queue = _queue(Places(a=1), on_change=lambda: shown.append((queue.num_waiting, queue.num_held)))
    async with queue.take(PlaceWish()):
        waiting = _enter(queue)
        await _settle()
        assert shown[-1] == (1, 1)
        waiting.cancel()
        await _settle()
        assert shown[-1] == (0, 1)
    await _settle()

    assert shown[-1] == (0, 0)


async def test_closing_tells_the_requests_that_wait():
    """A request that waits for a place hears that the gateway goes down, and so does one that comes later."""
    places = Places()
    queue = _queue(places)
    waiting = [_enter(queue), _enter(queue, resumed=True)]
    await _settle()
    await queue.close()

    for request in (*waiting, _enter(queue)):
        with pytest.raises(TargetUnavailableError, match="going down"):
            await request
    assert (places.waiting, queue.num_waiting) == (0, 0)


async def test_a_further_attempt_is_not_refused_for_its_own_place():
    """A request that was let in once is not turned away by a queue that it fills itself; a new one is."""
    queue = _queue(Places(a=2), max_taken=1)
    async with queue.take(PlaceWish()):
        async with queue.take(PlaceWish(resumed=True)) as lease:
            assert lease.selection == "a"
        with pytest.raises(OverloadedError):
            await _enter(queue)


REQUESTS = st.builds(
    dict,
    at=st.floats(0, 5),
    length=st.floats(0, 5),
    gives_up=st.none() | st.floats(0, 5),
    wish=st.builds(
        PlaceWish,
        tenant=st.sampled_from("xyz"),
        priority=st.sampled_from(Priority),
        deadline=st.none() | st.floats(0, 8),
        resumed=st.booleans(),
        exclude=st.sampled_from([frozenset(), frozenset("a"), frozenset("b")]),
    ),
)


@settings(deadline=None)
@given(requests=st.lists(REQUESTS, max_size=25), a=st.integers(0, 2), b=st.integers(1, 2))
def test_whatever_is_cancelled_when_every_place_comes_back(requests, a, b):
    """No place is lost, none is given to two or to whom it does not suit, and all counts are 0 in the end."""

    async def run() -> None:
        places = Places(a=a, b=b)
        shown = []
        queue = _queue(
            places,
            max_taken=8,
            max_wait_s=4.0,
            on_change=lambda: shown.append((queue.num_waiting, queue.num_held)),
        )

        async def use(request) -> None:
            await asyncio.sleep(request["at"])
            async with queue.take(request["wish"]) as lease:
                assert lease.selection not in request["wish"].exclude
                assert len(places.held) <= a + b
                await asyncio.sleep(request["length"])

        async def client(request) -> None:
            task = asyncio.create_task(use(request))
            await asyncio.wait([task], timeout=30 if request["gives_up"] is None else request["gives_up"])
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError, OverloadedError):
                await task

        await asyncio.gather(*(client(request) for request in requests))
        await places.look_again()
        await asyncio.sleep(2)

        assert places.held == []
        assert places.free == {"a": a, "b": b}
        assert (queue.num_waiting, queue.num_held, places.waiting) == (0, 0, 0)
        assert not shown or shown[-1] == (0, 0)
        assert queue._tasks == set()

    virtual_time.run(run())
