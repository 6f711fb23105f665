"""The end of an attempt, on a replica that does not do what it should."""

import asyncio

import pytest

from paceline.errors import TargetLostError, TargetUnavailableError
from paceline_serve import attempt_hold
from paceline_serve.attempt_hold import AttemptHold


class Response:
    """A hold that ends when its future does."""

    def __init__(self) -> None:
        self.result = asyncio.get_running_loop().create_future()
        self.cancelled = False

    def __await__(self):
        return self.result.__await__()

    def cancel(self) -> None:
        self.cancelled = True


class Target:
    def __init__(self, abort) -> None:
        self.abort = abort


@pytest.fixture(autouse=True)
def _short(monkeypatch):
    monkeypatch.setattr(attempt_hold, "_SETTLE_S", 0.05)
    monkeypatch.setattr(attempt_hold, "_VERDICT_S", 0.05)


async def _never(key: str) -> None:
    await asyncio.sleep(60)


async def _broken(key: str) -> None:
    raise ZeroDivisionError


async def _fine(key: str) -> None:
    return


@pytest.mark.parametrize("abort", [_never, _broken, _fine])
async def test_a_stuck_or_broken_target_cannot_keep_a_place(abort):
    """Whatever the replica makes of an abort, the settling ends and the hold is cancelled."""
    response = Response()

    await asyncio.wait_for(AttemptHold(response, Target(abort), "r/1").settle(), 1)

    assert response.cancelled


async def test_a_settling_that_is_cancelled_still_ends_the_hold():
    """A gateway that goes down in the midst of it leaves no hold behind."""
    response = Response()
    settling = asyncio.create_task(AttemptHold(response, Target(_never), "r/1").settle())
    await asyncio.sleep(0.01)
    settling.cancel()
    with pytest.raises(asyncio.CancelledError):
        await settling

    assert response.cancelled


@pytest.mark.parametrize("completed", [True, False])
async def test_an_attempt_that_did_not_run_to_its_end_is_aborted_by_name(completed):
    """That a call has ended on this side is no proof that the replica knows; one that completed needs nothing."""
    response = Response()
    aborted = []

    async def abort(key: str) -> None:
        aborted.append(key)
        response.result.set_result(True)

    hold = AttemptHold(response, Target(abort), "r/1")

    async def batches():
        yield []

    await hold.first_batch(batches())
    if completed:
        hold.completed()
        response.result.set_result(True)
    await hold.settle()

    assert aborted == ([] if completed else ["r/1"])
    assert not response.cancelled


@pytest.mark.parametrize(("then", "expected"), [("dies", TargetLostError), ("hangs", TargetUnavailableError)])
async def test_what_the_stream_says_counts_more_than_a_failed_hold(then, expected):
    """A replica that died with the attempt in hand may have died of it, even if Ray is the first to notice."""
    response = Response()
    hold = AttemptHold(response, Target(_fine), "r/1")

    async def batches():
        await asyncio.sleep(0.01)
        if then == "dies":
            raise TargetLostError("connection reset")
        await asyncio.sleep(60)
        yield []

    response.result.set_exception(ConnectionError("the actor died"))
    with pytest.raises(TargetUnavailableError) as caught:
        await asyncio.wait_for(hold.first_batch(batches()), 10)

    assert type(caught.value) is expected


async def test_a_hold_without_a_stream_is_no_place():
    """The replica gave the place up because no stream came, so the stream must not go on without it."""
    response = Response()
    hold = AttemptHold(response, Target(_fine), "r/1")
    ended = []

    async def batches():
        try:
            await asyncio.sleep(60)
            yield []
        finally:
            ended.append(True)

    response.result.set_result(False)
    with pytest.raises(TargetUnavailableError, match="no stream came in time"):
        await asyncio.wait_for(hold.first_batch(batches()), 1)

    assert ended == [True]
