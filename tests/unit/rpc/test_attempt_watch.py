import asyncio

import pytest
from grpc import aio

from paceline.errors import DeadlineExceededError, EngineFailedError, TargetUnavailableError
from paceline.rpc.attempt_watch import AttemptWatch
from paceline.v1 import target_pb2
from peers import until

TOKENS = target_pb2.StreamResponse(chunks=[target_pb2.Chunk(token_ids=[1])])


class Wire:
    """What a stream sends; may stand still, as when nobody reads."""

    def __init__(self):
        self.sent = []
        self.flows = asyncio.Event()
        self.flows.set()

    async def write(self, message):
        await self.flows.wait()
        self.sent.append(message)

    @property
    def num_signs(self):
        return sum(not message.chunks for message in self.sent)


def healthy():
    return


async def talk(watch, check, deadline_s):
    """A stream with one message that would go on for long."""
    async with watch.running(check, deadline_s):
        await watch.write(TOKENS)
        await asyncio.sleep(60)


async def test_a_silent_stream_gives_signs_of_life():
    """An empty message again and again while no token comes."""
    wire = Wire()
    watch = AttemptWatch(wire.write, signs=True, every_s=0.01)
    async with watch.running(healthy, None):
        await until(lambda: wire.num_signs >= 3)
    await asyncio.sleep(0.03)
    assert wire.num_signs == len(wire.sent)
    assert watch.num_messages == 0


async def test_tokens_are_sign_enough():
    """Nothing is added to a stream whose tokens come often."""
    wire, loop = Wire(), asyncio.get_running_loop()
    watch = AttemptWatch(wire.write, signs=True, every_s=0.05)
    async with watch.running(healthy, None):
        stop_at = loop.time() + 0.5
        while loop.time() < stop_at:
            await watch.write(TOKENS)
            await asyncio.sleep(0)
    assert wire.num_signs < 3  # ten without the tokens; one may come where the machine stands still
    assert watch.num_messages == len(wire.sent) - wire.num_signs


async def test_an_end_that_knows_no_signs_gets_none_and_is_watched_all_the_same():
    """Before version 2 an empty message means nothing; the checks are the target's own."""
    wire, checks = Wire(), []
    watch = AttemptWatch(wire.write, signs=False, every_s=0.01)
    async with watch.running(lambda: checks.append(1), None):
        await until(lambda: len(checks) >= 3)
    assert wire.sent == []


@pytest.mark.parametrize("flows", [True, False], ids=["read", "not read"])
async def test_a_fault_ends_the_stream(flows):
    """What the check raises ends the block at its next await, even one that waits for the other end to read."""
    wire, fault, checks = Wire(), EngineFailedError("stuck"), []
    if not flows:
        wire.flows.clear()

    def check():
        checks.append(1)
        if len(checks) == 3:
            raise fault

    watch = AttemptWatch(wire.write, signs=True, every_s=0.01)
    with pytest.raises(EngineFailedError) as caught:
        await talk(watch, check, None)
    assert caught.value is fault


@pytest.mark.parametrize("flows", [True, False], ids=["read", "not read"])
async def test_a_deadline_ends_the_stream(flows):
    """Nobody waits for what comes later, whether the other end reads or not."""
    wire = Wire()
    if not flows:
        wire.flows.clear()
    watch = AttemptWatch(wire.write, signs=True, every_s=0.01)
    with pytest.raises(DeadlineExceededError):
        await talk(watch, healthy, 0.05)


async def test_errors_and_cancels_of_the_block_pass_through():
    """The watch ends with its block and changes nothing about how that ends."""
    watch = AttemptWatch(Wire().write, signs=True, every_s=0.01)
    with pytest.raises(TimeoutError, match="its own"):
        async with watch.running(healthy, 60):
            raise TimeoutError("its own")

    task = asyncio.create_task(talk(watch, healthy, 60))
    await asyncio.sleep(0.02)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


async def test_checks_do_not_wait_for_a_sign_that_does_not_get_out():
    """The other end may stop reading just where only a sign is left to write."""
    wire, checks = Wire(), []
    wire.flows.clear()
    watch = AttemptWatch(wire.write, signs=True, every_s=0.01)
    async with watch.running(lambda: checks.append(1), None):
        await until(lambda: len(checks) >= 4)
    assert wire.sent == []


async def test_messages_are_written_one_at_a_time():
    """A sign of life never comes between the start and the end of another message."""
    busy, most = 0, 0

    async def write(_message):
        nonlocal busy, most
        busy += 1
        most = max(most, busy)
        await asyncio.sleep(0.015)
        busy -= 1

    watch = AttemptWatch(write, signs=True, every_s=0.005)
    async with watch.running(healthy, None):
        for _ in range(10):
            await watch.write(TOKENS)
            await asyncio.sleep(0.004)
    assert most == 1


async def test_a_stream_that_cannot_be_written_to_ends():
    """A call that is over ends its attempt, even where nobody cancels the handler."""

    async def write(_message):
        raise aio.UsageError("the call is over")

    watch = AttemptWatch(write, signs=True, every_s=0.01)
    with pytest.raises(TargetUnavailableError, match="UsageError"):
        async with watch.running(healthy, None):
            await asyncio.sleep(60)
