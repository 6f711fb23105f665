import asyncio
import dataclasses
import random
import time

import grpc
import pytest

from paceline.core.generation import ChoiceStart
from paceline.errors import (
    ContextLengthExceededError,
    EngineFailedError,
    OverloadedError,
    TargetUnavailableError,
)
from paceline.rpc import target_client
from paceline.rpc.holds import HoldRegistry
from paceline.rpc.target_client import TargetConnection
from paceline.rpc.target_server import TargetServicer
from peers import PEER, TOKEN, StubBackend, generation, serving, until


class Pair:
    """A target's servicer and a gateway's connection to it."""

    def __init__(self, backend: StubBackend) -> None:
        self.backend = backend
        self.holds = HoldRegistry(open_within_s=1)
        self._serving = serving(TargetServicer(backend, self.holds))

    async def __aenter__(self) -> "Pair":
        self.server = await self._serving.__aenter__()
        self.target = TargetConnection(self.server.address, TOKEN, peer=PEER)
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.target.close()
        await self._serving.__aexit__(*exc)


async def collect(target: TargetConnection, request) -> tuple[list[int], list]:
    chunks = [chunk async for batch in target.stream(request) for chunk in batch]
    return [token for chunk in chunks for token in chunk.token_ids], chunks


async def test_no_token_is_lost_at_the_end():
    """For every answer length and batch size the joined ids are all there, and the finish comes last, counted."""
    rng = random.Random(1)
    async with Pair(StubBackend()) as pair:
        for length in range(1, 21):
            pair.backend.per_batch, pair.backend.pause_s = rng.randint(1, 5), rng.choice([0.0, 0.001])
            ids, chunks = await collect(pair.target, generation(f"r{length}/1", max_tokens=length))
            assert ids == list(range(length))
            assert [chunk.finish is not None for chunk in chunks] == [False] * (len(chunks) - 1) + [True]
            assert chunks[-1].stats.completion_tokens == length


async def test_a_resumed_stream_has_only_what_had_not_arrived():
    """The stream continues behind the tokens that the request names, even where the target repeats some of them."""
    start = ChoiceStart(1, (0, 1, 2), text_offset=3)
    async with Pair(StubBackend(per_batch=2)) as pair:
        request = dataclasses.replace(generation(max_tokens=7, num_choices=2), resumed=(start,))
        ids, chunks = await collect(pair.target, request)

    assert ids == [3, 4, 5, 6]
    assert {chunk.choice for chunk in chunks} == {1}
    assert (chunks[0].first_index, chunks[0].text_offset) == (3, 3)


async def test_choices_keep_their_own_order():
    """The choices of one request come interleaved, each complete."""
    async with Pair(StubBackend(per_batch=3)) as pair:
        _, chunks = await collect(pair.target, generation(max_tokens=7, num_choices=3))
    for choice in range(3):
        assert [i for chunk in chunks if chunk.choice == choice for i in chunk.token_ids] == list(range(7))


@pytest.mark.parametrize(
    "error", [ContextLengthExceededError(5, 5, 8), OverloadedError("The queue", 1.0), EngineFailedError("boom")]
)
async def test_refusal_of_the_engine_reaches_the_gateway_before_any_chunk(error):
    """What the engine raises at admission is raised by the stream, same class and words, with no chunk before."""
    async with Pair(StubBackend(error=error)) as pair:
        with pytest.raises(type(error)) as caught:
            await collect(pair.target, generation())
        assert str(caught.value) == str(error)
        assert pair.holds.num_held == 0


@pytest.mark.parametrize("moment", ["between tokens", "in prefill", "while the reader is slow"])
async def test_cancel_reaches_the_engine_at_any_moment(moment):
    """A gateway that goes away ends its request at the engine within a step, and its slot is free."""
    backend = StubBackend(pause_s=0.001)
    if moment == "in prefill":
        backend.before_first = asyncio.Event()
    async with Pair(backend) as pair:
        stream = pair.target.stream(generation(max_tokens=100_000))
        reader = asyncio.create_task(anext(stream))
        await until(lambda: backend.running == {"r/1"})
        if moment != "in prefill":
            await reader
        if moment == "while the reader is slow":
            await asyncio.sleep(0.3)
        reader.cancel()
        await asyncio.gather(reader, return_exceptions=True)
        started = time.monotonic()
        await stream.aclose()
        await until(lambda: not backend.running and pair.holds.num_held == 0, 1.0)
        assert time.monotonic() - started < 0.5
        assert backend.aborted == ["r/1"]


async def test_gateway_that_dies_frees_everything():
    """A connection that is cut (no goodbye per call) ends all its streams at the engine."""
    backend = StubBackend(pause_s=0.001)
    async with Pair(backend) as pair:
        streams = [pair.target.stream(generation(f"r{i}/1", max_tokens=100_000)) for i in range(3)]
        for stream in streams:
            await anext(stream)
        assert len(backend.running) == 3
        await pair.target.close()
        await until(lambda: not backend.running and pair.holds.num_held == 0, 5.0)


async def test_stopped_replica_is_retryable_not_a_cancel():
    """A server that stops in mid-answer gives an error to try elsewhere; the gateway's own task is not cancelled."""
    backend = StubBackend(pause_s=0.001)
    async with Pair(backend) as pair:
        stream = pair.target.stream(generation(max_tokens=100_000))
        await anext(stream)
        stopping = asyncio.create_task(pair.server.stop(0.0))
        with pytest.raises(TargetUnavailableError):
            async for _ in stream:
                pass
        await stopping


async def test_engine_that_cancels_its_own_generator_ends_the_call():
    """A cancel that starts inside the replica (an engine that shuts down) gives the gateway a status to act on."""
    async with Pair(StubBackend(error=asyncio.CancelledError())) as pair:
        with pytest.raises(TargetUnavailableError, match="inside the replica"):
            await asyncio.wait_for(collect(pair.target, generation()), 5)


async def test_connection_closed_under_a_reader_is_retryable_not_a_cancel():
    """Whoever reads from a connection that is closed elsewhere gets an error; its task goes on."""
    async with Pair(StubBackend(pause_s=0.001)) as pair:
        stream = pair.target.stream(generation(max_tokens=100_000))
        await anext(stream)
        closing = asyncio.create_task(pair.target.close())
        with pytest.raises(TargetUnavailableError):
            async for _ in stream:
                pass
        await closing


async def test_status_cancelled_is_retryable_not_a_cancel_of_the_gateway():
    """A status CANCELLED from the other end is an error of the stream; the gateway's own task goes on."""

    class Cancelling(TargetServicer):
        async def Stream(self, request, context):  # noqa: N802
            await context.abort(grpc.StatusCode.CANCELLED, "not today")

    async with serving(Cancelling(StubBackend(), HoldRegistry(1))) as server:
        target = TargetConnection(server.address, TOKEN, peer=PEER)
        with pytest.raises(TargetUnavailableError):
            await collect(target, generation())
        await target.close()


async def test_abort_is_idempotent_and_bound_to_its_attempt():
    """An abort of an attempt that is unknown or over succeeds and touches nothing else."""
    async with Pair(StubBackend(pause_s=0.001)) as pair:
        stream = pair.target.stream(generation("r/2", max_tokens=50))
        await anext(stream)
        await pair.target.abort("r/1")
        await pair.target.abort("r/1")
        assert pair.backend.running == {"r/2"}
        rest = [chunk async for batch in stream for chunk in batch]
        assert rest[-1].finish is not None


async def test_load_is_reported_at_once_on_change_and_in_between():
    """A watcher sees the load right away, then each change within 0.2 s, then a sign of life every second."""
    async with Pair(StubBackend()) as pair:
        reports = pair.target.watch_load()
        started = time.monotonic()
        first = await anext(reports)
        assert (first.load.running, first.system_fingerprint) == (0, "fingerprint")
        assert time.monotonic() - started < 0.5

        pair.backend.load = dataclasses.replace(pair.backend.load, running=5)
        changed_at = time.monotonic()
        assert (await anext(reports)).load.running == 5
        assert time.monotonic() - changed_at < 0.4

        idle_since = time.monotonic()
        assert (await anext(reports)).load.running == 5
        assert 0.5 < time.monotonic() - idle_since < 1.5
        await reports.aclose()


async def test_stale_token_is_a_target_fault_for_the_gateway():
    """A gateway with the token of a replica's predecessor gets an error to try elsewhere, not a 401 for its client."""
    async with Pair(StubBackend()) as pair:
        stale = TargetConnection(pair.server.address, "old", peer=PEER)
        with pytest.raises(TargetUnavailableError):
            await collect(stale, generation())
        with pytest.raises(TargetUnavailableError):
            await stale.abort("r/1")
        await stale.close()


async def test_abort_does_not_wait_for_a_stuck_replica(monkeypatch):
    """Whoever gives up on a replica is not held up by it."""
    monkeypatch.setattr(target_client, "ABORT_TIMEOUT_S", 0.1)

    class Stuck(TargetServicer):
        async def Abort(self, request, context):  # noqa: N802
            await asyncio.sleep(60)

    async with serving(Stuck(StubBackend(), HoldRegistry(1))) as server:
        target = TargetConnection(server.address, TOKEN, peer=PEER)
        with pytest.raises(TargetUnavailableError):
            await asyncio.wait_for(target.abort("r/1"), 2)
        await target.close()


async def test_a_closed_connection_is_an_error_to_try_elsewhere():
    """Before and during a call, of every kind; the caller's own task is not cancelled."""

    class Stuck(TargetServicer):
        async def Abort(self, request, context):  # noqa: N802
            await asyncio.sleep(60)

    async with serving(Stuck(StubBackend(), HoldRegistry(1))) as server:
        target = TargetConnection(server.address, TOKEN, peer=PEER)
        under_way = asyncio.create_task(target.abort("r/1"))
        await asyncio.sleep(0.1)
        await target.close()
        with pytest.raises(TargetUnavailableError):
            await under_way
        for call in (target.abort("r/1"), collect(target, generation()), anext(target.watch_load())):
            with pytest.raises(TargetUnavailableError):
                await call
