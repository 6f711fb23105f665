"""What a gateway makes of a target that dies, falls silent, refuses or is left, over real connections."""

import asyncio
import contextlib

import grpc
import pytest

from paceline.errors import TargetLeavingError, TargetLostError, TargetUnavailableError
from paceline.rpc.codec_target import encode_chunks
from paceline.rpc.holds import HoldRegistry
from paceline.rpc.target_client import TargetConnection
from paceline.rpc.target_server import TargetServicer
from paceline.v1 import target_pb2
from peers import PEER, TOKEN, StubBackend, chunk_of, generation, serving, until


class Scripted(TargetServicer):
    """Its streams do what the test says."""

    def __init__(self, script) -> None:
        super().__init__(StubBackend(), HoldRegistry(5))
        self._script = script

    async def Stream(self, request, context):  # noqa: N802
        await self._script(context)


@contextlib.asynccontextmanager
async def connected(servicer: TargetServicer, *, silence_s: float | None = None):
    """A server and a connection to it that stands, as the one of a gateway does: it watches the load."""
    async with serving(servicer) as server:
        target = TargetConnection(server.address, TOKEN, peer=PEER, silence_s=silence_s)
        try:
            await anext(target.watch_load())
            yield target, server
        finally:
            await target.close()


async def _ids(stream) -> list[int]:
    return [token for batch in [batch async for batch in stream] for chunk in batch for token in chunk.token_ids]


@pytest.mark.parametrize("moment", ["in mid-answer", "in prefill"])
async def test_a_target_that_dies_with_the_attempt_is_lost(moment):
    """The attempt may be why it died, also where nothing of it had arrived yet."""
    backend = StubBackend(pause_s=0.001)
    if moment == "in prefill":
        backend.before_first = asyncio.Event()
    async with connected(TargetServicer(backend, HoldRegistry(5))) as (target, server):
        stream = target.stream(generation(max_tokens=100_000))
        reading = asyncio.create_task(_ids(stream))
        await until(lambda: bool(backend.running))
        await server.stop(0.0)
        with pytest.raises(TargetLostError):
            await reading


async def test_a_target_that_dies_at_its_first_words_is_lost():
    """Also over a connection that nobody had used before, as to a replica that has only just started."""
    backend = StubBackend()
    backend.before_first = asyncio.Event()
    async with serving(TargetServicer(backend, HoldRegistry(5))) as server:
        target = TargetConnection(server.address, TOKEN, peer=PEER)
        reading = asyncio.create_task(_ids(target.stream(generation())))
        await until(lambda: bool(backend.running))
        await server.stop(0.0)
        with pytest.raises(TargetLostError):
            await reading
        await target.close()


@pytest.mark.parametrize("how", ["closed", "cancelled", "ended"])
async def test_an_attempt_can_be_given_up_while_it_connects(how):
    """A replica that does not answer holds nobody who wants to go."""
    async with await asyncio.start_server(lambda _reader, _writer: asyncio.sleep(60), "127.0.0.1") as mute:
        target = TargetConnection(f"127.0.0.1:{mute.sockets[0].getsockname()[1]}", TOKEN, peer=PEER)
        stream = target.stream(generation())
        reading = asyncio.create_task(_ids(stream))
        await asyncio.sleep(0.1)
        assert not reading.done()
        if how == "closed":
            await target.close()
        elif how == "cancelled":
            reading.cancel()
        else:
            stream.end(TargetLeavingError("it goes"))
        outcome = {"closed": TargetUnavailableError, "cancelled": asyncio.CancelledError, "ended": TargetLeavingError}
        with pytest.raises(outcome[how]):
            await asyncio.wait_for(reading, 30)
        await target.close()


async def test_a_target_that_nobody_reached_is_only_unavailable():
    """An attempt that got no connection is to blame for nothing."""
    async with serving() as server:
        address = server.address
    target = TargetConnection(address, TOKEN, peer=PEER)
    with pytest.raises(TargetUnavailableError) as caught:
        await _ids(target.stream(generation()))
    await target.close()

    assert type(caught.value) is TargetUnavailableError


async def test_a_target_that_refuses_is_not_lost():
    """A place that was given up is the target's own word: it lives, and never ran the attempt."""
    holds = HoldRegistry(5)
    holds.opened("r/1")
    async with connected(TargetServicer(StubBackend(), holds)) as (target, _):
        with pytest.raises(TargetUnavailableError) as caught:
            await _ids(target.stream(generation()))

    assert type(caught.value) is TargetUnavailableError


async def test_an_answer_that_ends_too_early_is_lost():
    """A stream that ends well before its answer does never looks like a normal end."""

    async def script(context):
        await context.write(encode_chunks([chunk_of("r/1", 0, 0, 3, 8)]))

    async with connected(Scripted(script)) as (target, _):
        with pytest.raises(TargetLostError, match="ended before the answer did"):
            await _ids(target.stream(generation()))


async def test_an_answer_that_is_complete_stays_so_whatever_follows():
    """A connection that breaks behind the last token breaks nothing."""

    async def script(context):
        await context.write(encode_chunks([chunk_of("r/1", 0, 0, 8, 8)]))
        await context.abort(grpc.StatusCode.UNAVAILABLE, "the socket broke")

    async with connected(Scripted(script)) as (target, _):
        assert await _ids(target.stream(generation())) == list(range(8))


@pytest.mark.parametrize("first", [0, 3])
async def test_a_silent_target_is_lost(first):
    """One that says nothing, before or after the first token, is given up; one that knows no signs of life is not."""
    go_on = asyncio.Event()

    async def script(context):
        if first:
            await context.write(encode_chunks([chunk_of("r/1", 0, 0, first, 8)]))
        await go_on.wait()
        await context.write(encode_chunks([chunk_of("r/1", 0, first, 8, 8)]))

    async with connected(Scripted(script), silence_s=0.2) as (target, server):
        patient = TargetConnection(server.address, TOKEN, peer=PEER)
        waiting = asyncio.create_task(_ids(patient.stream(generation())))
        with pytest.raises(TargetLostError, match="sent nothing"):
            await asyncio.wait_for(_ids(target.stream(generation())), 10)
        go_on.set()

        assert await waiting == list(range(8))
        await patient.close()


async def test_signs_of_life_keep_a_quiet_stream():
    """A long prefill is no death as long as the target says so."""

    async def script(context):
        for _ in range(20):
            await asyncio.sleep(0.05)
            await context.write(target_pb2.StreamResponse())
        await context.write(encode_chunks([chunk_of("r/1", 0, 0, 8, 8)]))

    async with connected(Scripted(script), silence_s=0.5) as (target, _):
        assert await _ids(target.stream(generation())) == list(range(8))


async def test_a_slow_reader_does_not_blame_the_target():
    """A client that takes its time between two tokens is not a target that has stopped."""
    async with connected(TargetServicer(StubBackend(per_batch=2), HoldRegistry(5)), silence_s=0.3) as (target, _):
        ids = []
        async for batch in target.stream(generation(max_tokens=6)):
            ids += [token for chunk in batch for token in chunk.token_ids]
            await asyncio.sleep(0.5)

    assert ids == list(range(6))


@pytest.mark.parametrize("moment", ["before it begins", "in prefill", "between tokens"])
async def test_a_stream_can_be_ended_from_outside(moment):
    """Its reader gets the reason; the engine drops the attempt."""
    backend = StubBackend(pause_s=0.001)
    if moment == "in prefill":
        backend.before_first = asyncio.Event()
    async with connected(TargetServicer(backend, HoldRegistry(5))) as (target, _):
        stream = target.stream(generation(max_tokens=100_000))
        if moment == "between tokens":
            await anext(stream)
        elif moment == "in prefill":
            reading = asyncio.create_task(anext(stream))
            await until(lambda: bool(backend.running))
        stream.end(TargetLeavingError("it goes"))
        stream.end(TargetLeavingError("again"))
        with pytest.raises(TargetLeavingError, match="it goes"):
            await (reading if moment == "in prefill" else _ids(stream))
        await until(lambda: not backend.running)


async def test_a_reader_that_is_cancelled_while_its_stream_is_ended_is_cancelled():
    """Whoever wanted to stop does not get an error instead."""
    backend = StubBackend()
    backend.before_first = asyncio.Event()
    async with connected(TargetServicer(backend, HoldRegistry(5))) as (target, _):
        stream = target.stream(generation())
        reading = asyncio.create_task(_ids(stream))
        await until(lambda: bool(backend.running))
        stream.end(TargetLeavingError("it goes"))
        reading.cancel()
        with pytest.raises(asyncio.CancelledError):
            await reading


async def test_a_connection_that_takes_its_time_is_waited_for():
    """On a crowded machine the first words of a target may take half a second; that is no failure."""
    async with serving(TargetServicer(StubBackend(), HoldRegistry(5))) as server:
        host, _, port = server.address.rpartition(":")
        piping = set()

        async def slowly(reader, writer):
            await asyncio.sleep(0.5)
            far_reader, far_writer = await asyncio.open_connection(host, int(port))
            piping.update(asyncio.create_task(_pipe(*ends)) for ends in ((reader, far_writer), (far_reader, writer)))

        async with await asyncio.start_server(slowly, host) as proxy:
            target = TargetConnection(f"{host}:{proxy.sockets[0].getsockname()[1]}", TOKEN, peer=PEER)
            assert await _ids(target.stream(generation())) == list(range(8))
            await target.close()
        await asyncio.gather(*piping)


async def _pipe(reader, writer) -> None:
    with contextlib.suppress(ConnectionError):
        while data := await reader.read(2**16):
            writer.write(data)
            await writer.drain()
    writer.close()
