import asyncio
import contextlib
import dataclasses
import random
import time

import grpc
import pytest
from grpc import aio

from paceline.core.generation import ChoiceStart
from paceline.errors import (
    ContextLengthExceededError,
    DeadlineExceededError,
    EngineFailedError,
    OverloadedError,
    TargetUnavailableError,
)
from paceline.rpc import target_client
from paceline.rpc.auth import call_metadata
from paceline.rpc.codec_target import encode_generation_request
from paceline.rpc.drain_flag import DrainFlag
from paceline.rpc.holds import HoldRegistry
from paceline.rpc.options import channel_options
from paceline.rpc.protocol import OURS, Versions
from paceline.rpc.target_client import TargetConnection
from paceline.rpc.target_server import TargetServicer
from paceline.v1 import target_pb2_grpc
from peers import PEER, TOKEN, StubBackend, generation, serving, until


class Pair:
    """A target's servicer and a gateway's connection to it."""

    def __init__(self, backend: StubBackend, *, open_within_s: float = 60, versions: Versions = OURS) -> None:
        self.backend = backend
        self.draining = DrainFlag()
        self.holds = HoldRegistry(open_within_s, self.draining)
        self._serving = serving(TargetServicer(backend, self.holds, versions=versions, sign_of_life_s=0.02))

    async def __aenter__(self) -> "Pair":
        self.server = await self._serving.__aenter__()
        self.target = TargetConnection(self.server.address, TOKEN, peer=PEER)
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.target.close()
        await self._serving.__aexit__(*exc)


def prefilling() -> StubBackend:
    """An engine whose first token does not come until ``before_first`` is set."""
    backend = StubBackend()
    backend.before_first = asyncio.Event()
    return backend


@contextlib.asynccontextmanager
async def raw_stream(pair: Pair, request):
    """The call itself, with all its messages: what `TargetConnection` does not show."""
    async with aio.insecure_channel(pair.server.address, options=channel_options(PEER)) as channel:
        stub = target_pb2_grpc.TargetServiceStub(channel)
        call = stub.Stream(request, metadata=call_metadata(TOKEN))
        try:
            yield call
        finally:
            call.cancel()


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


@pytest.mark.parametrize(("gateway", "signs"), [(Versions(1, 2), True), (Versions(1, 1), False)], ids=["2", "1"])
async def test_a_silent_attempt_gives_signs_of_life_to_gateways_that_know_them(gateway, signs):
    """During a long prefill empty messages come; an older gateway gets none, and both get the whole answer."""
    async with Pair(prefilling()) as pair:
        request = encode_generation_request(generation(max_tokens=3), gateway)
        async with raw_stream(pair, request) as call:
            await until(lambda: pair.backend.running == {"r/1"})
            messages = aiter(call)
            if signs:
                assert [len((await anext(messages)).chunks) for _ in range(3)] == [0, 0, 0]
            else:
                await asyncio.sleep(0.1)
            pair.backend.before_first.set()
            counts = [len(message.chunks) async for message in messages]
    assert [count for count in counts if count] == [1, 1, 1]
    assert signs or 0 not in counts


async def test_no_sign_of_life_comes_from_a_stuck_engine():
    """As soon as the engine calls itself unhealthy its streams end and say why, so that they can go on elsewhere."""
    async with Pair(prefilling()) as pair:
        waiting = asyncio.create_task(collect(pair.target, generation()))
        await until(lambda: pair.backend.running == {"r/1"})
        pair.backend.fault = EngineFailedError("a step has not ended for 61 s")
        with pytest.raises(EngineFailedError, match="61 s"):
            await asyncio.wait_for(waiting, 5)
        assert pair.backend.aborted == ["r/1"]
        assert pair.holds.num_held == 0


async def test_the_deadline_of_an_attempt_holds_though_its_gateway_hangs():
    """An attempt whose gateway neither reads nor cancels ends at its deadline; engine and place are free."""
    async with Pair(StubBackend(pause_s=0.001, per_batch=100)) as pair:
        request = dataclasses.replace(generation(max_tokens=10**9), deadline_s=0.3)
        async with raw_stream(pair, encode_generation_request(request)) as call:
            await until(lambda: pair.backend.running == {"r/1"})
            # The gateway's side of gRPC takes what fits its window, and then nothing.
            await until(lambda: not pair.backend.running and pair.holds.num_held == 0)
            assert pair.backend.aborted == ["r/1"]
            with pytest.raises(aio.AioRpcError) as ended:
                async for _ in call:
                    pass
            assert ended.value.code() is grpc.StatusCode.DEADLINE_EXCEEDED


async def test_a_deadline_in_prefill_is_the_error_that_it_is():
    """The gateway's connection raises what ended the attempt."""
    async with Pair(prefilling()) as pair:
        with pytest.raises(DeadlineExceededError):
            await collect(pair.target, dataclasses.replace(generation(), deadline_s=0.05))
        await until(lambda: not pair.backend.running and pair.holds.num_held == 0)


async def test_a_stream_without_a_hold_or_a_token_ends():
    """Ray Serve counts nothing for it: it is told to go elsewhere once the time for its hold is over."""
    async with Pair(prefilling(), open_within_s=0.1) as pair:
        with pytest.raises(TargetUnavailableError, match="no hold came for attempt r/1"):
            await collect(pair.target, generation())
        assert pair.backend.aborted == ["r/1"]
        assert not await asyncio.wait_for(pair.holds.hold("r/2"), 5)  # one of another attempt is of no use to it


async def test_a_stream_whose_hold_is_late_goes_on_once_it_has_tokens():
    """An answer that runs is not ended because a control message is slow."""
    async with Pair(StubBackend(pause_s=0.01), open_within_s=0.05) as pair:
        ids, _ = await collect(pair.target, generation(max_tokens=20))
    assert ids == list(range(20))


async def test_a_held_stream_may_prefill_for_as_long_as_it_takes():
    """The time for the hold is no limit for the first token."""
    async with Pair(prefilling(), open_within_s=0.05) as pair:
        hold = asyncio.create_task(pair.holds.hold("r/1"))
        answer = asyncio.create_task(collect(pair.target, generation(max_tokens=3)))
        await asyncio.sleep(0.3)
        pair.backend.before_first.set()
        assert (await answer)[0] == [0, 1, 2]
        assert await hold


async def test_an_abort_that_overtakes_its_stream_refuses_it():
    """The engine never hears of an attempt that was given up before its stream came; the next attempt runs."""
    async with Pair(StubBackend()) as pair:
        await pair.target.abort("r/1")
        with pytest.raises(TargetUnavailableError):
            await collect(pair.target, generation("r/1"))
        assert pair.backend.ended == []
        assert (await collect(pair.target, generation("r/2", max_tokens=2)))[0] == [0, 1]


async def test_a_replica_that_drains_refuses_streams_reports_it_and_finishes_what_runs():
    """Gateways see it in the next report and take new requests elsewhere; running answers are whole."""
    async with Pair(StubBackend(pause_s=0.005)) as pair:
        reports = pair.target.watch_load()
        assert not (await anext(reports)).draining
        running = asyncio.create_task(collect(pair.target, generation("r/1", max_tokens=30)))
        await until(lambda: pair.backend.running == {"r/1"})

        pair.draining.start()

        async for report in reports:
            if report.draining:
                break
        with pytest.raises(TargetUnavailableError, match="draining"):
            await collect(pair.target, generation("s/1"))
        assert (await running)[0] == list(range(30))
        await reports.aclose()


async def test_reports_tell_the_time_and_whether_the_engine_gets_on():
    """Uptime grows from report to report; a stall shows while it lasts."""
    async with Pair(StubBackend()) as pair:
        reports = pair.target.watch_load()
        first = await anext(reports)
        pair.backend.stalled_s = 7.5
        second = await anext(reports)
        assert 0 < first.uptime_s < second.uptime_s
        assert (first.stalled_s, second.stalled_s) == (0.0, 7.5)
        await reports.aclose()
