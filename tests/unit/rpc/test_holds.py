import asyncio
import time

import pytest

from paceline.errors import TargetUnavailableError
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
