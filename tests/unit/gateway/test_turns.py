import asyncio

import virtual_time
from paceline.gateway.turns import Turns


async def _go(turns, replica, log, name, *, works_s):
    async with turns.turn(replica) as end:
        log.append((asyncio.get_running_loop().time(), name))
        await asyncio.sleep(works_s)
        end()
        await asyncio.sleep(100)


def _log_of(*steps, patience_s=3.0):
    """When each (replica, name, seconds until its turn ends) began."""
    log = []

    async def work():
        turns = Turns(patience_s=patience_s)
        await asyncio.gather(*(_go(turns, replica, log, name, works_s=works_s) for replica, name, works_s in steps))

    virtual_time.run(work())
    return log


def test_the_next_one_goes_when_the_one_before_has_got_on():
    """In the order in which they came, long before the block of the first one ends."""
    assert _log_of(("a", 1, 0.5), ("a", 2, 0.5), ("a", 3, 0.5)) == [(0.0, 1), (0.5, 2), (1.0, 3)]


def test_replicas_do_not_wait_for_each_other():
    """A turn is one replica's."""
    assert _log_of(("a", 1, 0.5), ("b", 2, 0.5), ("a", 3, 0.5)) == [(0.0, 1), (0.0, 2), (0.5, 3)]


def test_nobody_waits_longer_than_patience_lasts():
    """However many there are, and however long the first one takes."""
    log = _log_of(*(("a", number, 60) for number in range(5)))

    assert sorted(log) == [(0.0, 0), *((3.0, number) for number in range(1, 5))]


def test_a_turn_ends_with_its_block_and_a_cancelled_wait_leaves_none():
    """Whatever ends an attempt, the next one's turn comes."""

    async def work():
        turns = Turns(patience_s=1000.0)
        first = asyncio.create_task(_go(turns, "a", [], 1, works_s=1000))
        await asyncio.sleep(0)
        second = asyncio.create_task(_go(turns, "a", [], 2, works_s=1000))
        await asyncio.sleep(1)
        second.cancel()
        first.cancel()
        await asyncio.gather(first, second, return_exceptions=True)
        async with turns.turn("a"):
            return asyncio.get_running_loop().time()

    assert virtual_time.run(work()) == 1
