"""A queue under three times the load that its fleet can bear, in virtual time."""

import asyncio
import random
from collections import Counter
from contextlib import asynccontextmanager

import virtual_time
from paceline.errors import OverloadedError
from paceline.gateway.place_queue import PlaceQueue
from paceline.gateway.target_pool import PlaceWish

NUM_PLACES, MEAN_ANSWER_S, MAX_WAIT_S, DURATION_S = 8, 2.0, 10.0, 150.0
CAPACITY = NUM_PLACES / MEAN_ANSWER_S  # answers per second
ARRIVALS = 3 * CAPACITY  # requests per second


def test_overload_costs_neither_throughput_nor_waiting_without_end():
    """The fleet works at its full speed, nobody waits beyond the limit, and nine of ten refusals come at once."""
    waits: list[float] = []
    refusals: list[float] = []
    advice: list[float] = []
    shed: Counter[str] = Counter()
    chance = random.Random(1)

    async def load() -> None:
        loop, places = asyncio.get_running_loop(), asyncio.Semaphore(NUM_PLACES)

        @asynccontextmanager
        async def reserve(_wish, _withdrawn):
            async with places:
                yield

        queue = PlaceQueue(
            reserve, max_taken=1000, max_wait_s=MAX_WAIT_S, on_shed=lambda reason: shed.update((reason,))
        )

        async def client() -> None:
            came = loop.time()
            try:
                async with queue.take(PlaceWish()) as lease:
                    waits.append(lease.waited_s)
                    await asyncio.sleep(chance.expovariate(1 / MEAN_ANSWER_S))
            except OverloadedError as error:
                refusals.append(loop.time() - came)
                advice.append(error.retry_after_s)

        clients = []
        while loop.time() < DURATION_S:
            clients.append(asyncio.create_task(client()))
            await asyncio.sleep(chance.expovariate(ARRIVALS))
        await asyncio.gather(*clients)

    virtual_time.run(load())

    assert len(waits) > 0.9 * CAPACITY * DURATION_S
    assert max(waits) <= MAX_WAIT_S
    assert sum(wait == 0 for wait in refusals) > 0.9 * len(refusals)
    assert shed["expected_wait"] > 0.9 * len(refusals)
    assert all(1 <= retry_s <= 60 for retry_s in advice)
