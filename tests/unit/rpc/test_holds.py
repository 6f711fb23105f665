import asyncio
import time

import pytest

from paceline.errors import TargetUnavailableError
from paceline.rpc.drain_flag import DrainFlag
from paceline.rpc.holds import HoldRegistry


async def test_hold_lasts_exactly_as_long_as_the_stream():
    """A hold returns when its attempt's stream has ended, not before."""
    holds = HoldRegistry(open_within_s=1)
    hold = asyncio.create_task(holds.hold("r/1"))
    await asyncio.sleep(0)
    holds.opened("r/1")
    await asyncio.sleep(0.02)
    assert not hold.done()
    assert holds.num_held == 1

    holds.closed("r/1")

    assert await asyncio.wait_for(hold, 1)
    assert holds.num_held == 0


async def test_hold_that_comes_after_its_stream_returns_at_once():
    """Hold and stream travel on different ways; one that is overtaken does not wait for its time-out."""
    holds = HoldRegistry(open_within_s=60)
    holds.opened("r/1")
    holds.closed("r/1")

    assert await asyncio.wait_for(holds.hold("r/1"), 1)


async def test_hold_without_a_stream_runs_out_and_the_late_stream_is_refused():
    """A slot is not held for a gateway that died, and a stream without a slot is not served."""
    holds = HoldRegistry(open_within_s=0.02)

    assert not await holds.hold("r/1")

    assert holds.num_held == 0
    with pytest.raises(TargetUnavailableError):
        holds.opened("r/1")


async def test_cancelled_hold_leaves_nothing_behind():
    """A gateway that gives up before its stream opens holds nothing, and may not open it any more."""
    holds = HoldRegistry(open_within_s=60)
    hold = asyncio.create_task(holds.hold("r/1"))
    await asyncio.sleep(0)
    hold.cancel()
    await asyncio.gather(hold, return_exceptions=True)

    assert holds.num_held == 0
    with pytest.raises(TargetUnavailableError):
        holds.opened("r/1")


async def test_late_end_of_one_attempt_does_not_touch_the_next():
    """Attempts have keys of their own: what comes late for the first leaves the second running."""
    holds = HoldRegistry(open_within_s=1)
    holds.opened("r/1")
    second = asyncio.create_task(holds.hold("r/2"))
    await asyncio.sleep(0)
    holds.opened("r/2")

    holds.closed("r/1")
    holds.closed("r/1")
    await asyncio.sleep(0.01)

    assert not second.done()
    holds.closed("r/2")
    assert await second


async def test_one_attempt_streams_once():
    """A second stream of an attempt is refused while the first one runs and after it."""
    holds = HoldRegistry(open_within_s=1)
    holds.opened("r/1")
    with pytest.raises(TargetUnavailableError):
        holds.opened("r/1")
    holds.closed("r/1")
    with pytest.raises(TargetUnavailableError):
        holds.opened("r/1")


@pytest.mark.parametrize("ended", [False, True], ids=["streams", "has ended"])
async def test_a_stream_that_opens_as_its_hold_runs_out_is_held(ended):
    """Time-out and opening in one turn of the loop: what has opened keeps its slot until it ends."""
    loop, holds = asyncio.get_running_loop(), HoldRegistry(open_within_s=0.01)
    hold = asyncio.create_task(holds.hold("r/1"))
    await asyncio.sleep(0)
    loop.call_later(0.02, holds.opened, "r/1")
    if ended:
        loop.call_later(0.021, holds.closed, "r/1")
    time.sleep(0.04)  # noqa: ASYNC251  # all timers fall due together
    await asyncio.sleep(0.01)

    assert hold.done() is ended
    holds.closed("r/1")
    assert await asyncio.wait_for(hold, 1)
    assert holds.num_held == 0


async def test_an_abort_that_overtakes_its_stream_refuses_it():
    """Aborted before stream or hold has come: neither starts anything when it does, and nothing waits."""
    holds = HoldRegistry(open_within_s=60)
    holds.aborted("r/1")
    holds.aborted("r/1")

    with pytest.raises(TargetUnavailableError):
        holds.opened("r/1")
    assert await asyncio.wait_for(holds.hold("r/1"), 1)
    assert holds.num_held == 0
    holds.opened("r/2")  # the next attempt of the same request


async def test_an_abort_ends_a_hold_whose_stream_has_not_come():
    """A place is free as soon as its attempt is given up."""
    holds = HoldRegistry(open_within_s=60)
    hold = asyncio.create_task(holds.hold("r/1"))
    await asyncio.sleep(0)

    holds.aborted("r/1")

    assert await asyncio.wait_for(hold, 1)
    assert holds.num_held == 0


async def test_an_abort_leaves_a_running_streams_place_until_it_has_ended():
    """Ray Serve counts an attempt for as long as the engine may still work on it."""
    holds = HoldRegistry(open_within_s=60)
    hold = asyncio.create_task(holds.hold("r/1"))
    await asyncio.sleep(0)
    holds.opened("r/1")

    holds.aborted("r/1")
    await asyncio.sleep(0.01)

    assert not hold.done()
    assert holds.num_held == 1
    holds.closed("r/1")
    assert await asyncio.wait_for(hold, 1)


async def test_what_is_remembered_is_bounded():
    """However many attempts end or are aborted, a replica remembers only the newest."""
    holds = HoldRegistry(open_within_s=60)
    for number in range(10_000):
        holds.aborted(f"a{number}/1")
        holds.opened(f"b{number}/1")
        holds.closed(f"b{number}/1")

    holds.opened("a0/1")
    with pytest.raises(TargetUnavailableError):
        holds.opened("a9999/1")


async def test_whether_a_stream_was_ever_held_is_known_until_it_ends():
    """Also after its hold is gone, and whichever of the two came first."""
    holds = HoldRegistry(open_within_s=60)
    holds.opened("r/1")
    assert not holds.was_held("r/1")
    hold = asyncio.create_task(holds.hold("r/1"))
    await asyncio.sleep(0)
    assert holds.was_held("r/1")
    hold.cancel()
    await asyncio.gather(hold, return_exceptions=True)
    assert holds.was_held("r/1")
    holds.closed("r/1")
    assert not holds.was_held("r/1")


async def test_a_replica_that_drains_takes_nothing_new():
    """New holds and streams are refused, so that gateways go elsewhere; what has begun goes on to its end."""
    draining = DrainFlag()
    holds = HoldRegistry(60, draining)
    running = asyncio.create_task(holds.hold("running/1"))
    opening = asyncio.create_task(holds.hold("opening/1"))
    await asyncio.sleep(0)
    holds.opened("running/1")
    holds.opened("overtook/1")
    assert not holds.draining

    draining.start()
    draining.start()

    assert holds.draining
    with pytest.raises(TargetUnavailableError, match="draining"):
        await holds.hold("new/1")
    with pytest.raises(TargetUnavailableError, match="draining"):
        holds.opened("new/1")
    late = asyncio.create_task(holds.hold("overtook/1"))  # its stream had opened before
    holds.opened("opening/1")  # its hold had come before
    await asyncio.sleep(0)
    for key in ("running/1", "opening/1", "overtook/1"):
        holds.closed(key)
    assert await asyncio.wait_for(asyncio.gather(running, opening, late), 1) == [True] * 3
    assert holds.num_held == 0
