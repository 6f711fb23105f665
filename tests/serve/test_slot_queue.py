import asyncio
from contextlib import asynccontextmanager

import pytest

from paceline.errors import OverloadedError, TargetUnavailableError
from paceline.gateway.target_pool import PlaceWish
from paceline_serve.slot_queue import SlotQueue


class Places:
    """A fleet with a number of places; knows who waits inside it and who holds one."""

    def __init__(self, number: int) -> None:
        self.free = asyncio.Semaphore(number)
        self.held = 0
        self.waiting = 0
        self.handed_out = 0

    @asynccontextmanager
    async def reserve(self, wish: PlaceWish):
        self.waiting += 1
        try:
            await self.free.acquire()
        finally:
            self.waiting -= 1
        self.held += 1
        self.handed_out += 1
        try:
            yield self.handed_out
        finally:
            self.held -= 1
            self.free.release()


def _queue(places: Places, **options) -> SlotQueue[int]:
    return SlotQueue(places.reserve, **({"max_taken": 100, "max_reserving": 2} | options))


async def _settle() -> None:
    for _ in range(20):
        await asyncio.sleep(0)


async def test_requests_are_served_in_the_order_of_their_arrival():
    """First come, first served, whatever the number of tasks that wait inside the fleet."""
    places = Places(1)
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
    places = Places(0)
    queue = _queue(places, max_reserving=3)
    waiting = [asyncio.create_task(queue.take(PlaceWish()).__aenter__()) for _ in range(20)]
    await _settle()

    assert places.waiting == 3
    assert queue.num_waiting == 20

    for task in waiting:
        task.cancel()
    await asyncio.gather(*waiting, return_exceptions=True)
    await queue.close()


async def test_a_cancelled_request_leaves_its_place_to_the_next():
    """The reservation that was under way for a cancelled request serves the one behind it."""
    places = Places(0)
    queue = _queue(places, max_reserving=1)
    first = asyncio.create_task(queue.take(PlaceWish()).__aenter__())
    await _settle()
    second = asyncio.create_task(queue.take(PlaceWish()).__aenter__())
    first.cancel()
    await _settle()
    assert queue.num_waiting == 1

    places.free.release()
    lease = await second

    assert lease.selection == 1
    lease.release()
    await _settle()
    assert places.held == 0


async def test_a_place_that_nobody_wants_any_more_goes_back_at_once():
    """When all requests have gone, a late reservation is given back."""
    places = Places(0)
    queue = _queue(places)
    only = asyncio.create_task(queue.take(PlaceWish()).__aenter__())
    await _settle()
    only.cancel()
    await _settle()

    places.free.release()
    await _settle()

    assert places.handed_out == 1
    assert places.held == queue.num_held == 0


async def test_a_request_cancelled_as_its_place_comes_gives_it_back():
    """Cancellation between the hand-over and the wake-up loses no place."""
    places = Places(1)
    queue = _queue(places)
    request = asyncio.create_task(queue.take(PlaceWish()).__aenter__())
    while not queue.num_held:  # noqa: ASYNC110  # cancelled between two turns of the loop, so no event will do
        await asyncio.sleep(0)
    request.cancel()
    with pytest.raises(asyncio.CancelledError):
        await request
    await _settle()

    assert places.held == 0


async def test_a_place_goes_back_after_what_must_happen_first():
    """The settling of a lease runs while the place is still reserved, and survives the request's cancellation."""
    places = Places(1)
    queue = _queue(places)
    held_while_settling = []

    async def settle() -> None:
        await asyncio.sleep(0.01)
        held_while_settling.append(places.held)

    async def request() -> None:
        async with queue.take(PlaceWish()) as lease:
            lease.settle = settle
            await asyncio.sleep(10)

    task = asyncio.create_task(request())
    await _settle()
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    await asyncio.sleep(0.05)

    assert held_while_settling == [1]
    assert places.held == 0


async def test_a_full_queue_refuses():
    """Beyond max_taken waiting and running requests the queue says so at once."""
    places = Places(1)
    queue = _queue(places, max_taken=2)
    async with queue.take(PlaceWish()):
        waiting = asyncio.create_task(queue.take(PlaceWish()).__aenter__())
        await _settle()

        with pytest.raises(OverloadedError):
            await queue.take(PlaceWish()).__aenter__()
        waiting.cancel()


async def test_without_replicas_patience_ends():
    """A request does not wait for a fleet that is not there."""
    queue = _queue(Places(0), patience_s=0.02, is_empty=lambda: True)

    with pytest.raises(TargetUnavailableError, match="no replica is running"):
        await queue.take(PlaceWish()).__aenter__()
    await queue.close()


async def test_with_replicas_patience_does_not_end():
    """A busy fleet is worth waiting for; the request's own deadline is the limit."""
    places = Places(0)
    queue = _queue(places, patience_s=0.02, is_empty=lambda: False)
    request = asyncio.create_task(queue.take(PlaceWish()).__aenter__())
    await asyncio.sleep(0.1)
    assert not request.done()

    places.free.release()

    (await request).release()


async def test_a_failed_reservation_fails_one_request():
    """An error of the fleet reaches the request that waits; the queue goes on."""
    places = Places(1)
    failures = [RuntimeError("the router is gone")]

    @asynccontextmanager
    async def reserve(wish):
        if failures:
            raise failures.pop()
        async with places.reserve(wish) as place:
            yield place

    queue = SlotQueue(reserve, max_taken=10, max_reserving=1)

    with pytest.raises(TargetUnavailableError, match="RuntimeError"):
        await queue.take(PlaceWish()).__aenter__()
    async with queue.take(PlaceWish()) as lease:
        assert lease.selection == 1


async def test_every_change_is_told():
    """Whoever shows the numbers has the right ones when the queue is idle again."""
    places = Places(1)
    shown = []
    queue = _queue(places, on_change=lambda: shown.append((queue.num_waiting, queue.num_held)))
    async with queue.take(PlaceWish()):
        waiting = asyncio.create_task(queue.take(PlaceWish()).__aenter__())
        await _settle()
        assert shown[-1] == (1, 1)
        waiting.cancel()
        await _settle()
        assert shown[-1] == (0, 1)
    await _settle()

    assert shown[-1] == (0, 0)
    await queue.close()


async def test_closing_tells_the_requests_that_wait():
    """A request that waits for a place hears that the gateway goes down, and so does one that comes later."""
    places = Places(0)
    queue = _queue(places)
    waiting = asyncio.create_task(queue.take(PlaceWish()).__aenter__())
    await _settle()
    await queue.close()

    with pytest.raises(TargetUnavailableError, match="going down"):
        await waiting
    with pytest.raises(TargetUnavailableError, match="going down"):
        await queue.take(PlaceWish()).__aenter__()
    assert places.waiting == 0


async def test_a_further_attempt_is_not_refused_for_its_own_place():
    """A request that was let in once is not turned away by a queue that it fills itself; a new one is."""
    queue = _queue(Places(2), max_taken=1)
    async with queue.take(PlaceWish()):
        async with queue.take(PlaceWish(resumed=True)) as lease:
            assert lease.selection == 2
        with pytest.raises(OverloadedError):
            await queue.take(PlaceWish()).__aenter__()
