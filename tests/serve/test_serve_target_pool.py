"""The pool on real target servers in this process; Ray Serve's handle is a stand-in with the same two methods."""

import asyncio
import contextlib
from contextlib import asynccontextmanager
from types import SimpleNamespace

import pytest
from ray.serve.exceptions import ReplicaUnavailableError

from paceline.core.load import DrafterGroupStatus, TargetLoad
from paceline.errors import ContextLengthExceededError, TargetUnavailableError
from paceline.gateway.answer_stream import stream_answer
from paceline.gateway.target_pool import PlaceWish
from paceline.rpc.holds import HoldRegistry
from paceline.rpc.target_server import TargetServicer
from paceline.telemetry import catalogue
from paceline.telemetry.metrics import Metrics
from paceline_serve.membership import Membership, ReplicaInfo
from paceline_serve.metric_values import metric_value
from paceline_serve.names import TARGET
from paceline_serve.peer_metadata import encode_identity, peer_metadata
from paceline_serve.serve_target_pool import ServeTargetPool
from peers import IDENTITY, PEER, TOKEN, StubBackend, generation, serving, until


class Hold:
    """A hold that runs on a replica; what a Serve handle's response is."""

    def __init__(self, work) -> None:
        self.task = asyncio.ensure_future(work)

    def __await__(self):
        return self.task.__await__()

    def cancel(self) -> None:
        self.task.cancel()


class Handle:
    """``handle.hold``: gives out replicas in turn, within the wishes."""

    def __init__(self) -> None:
        self.holds: dict[str, HoldRegistry] = {}
        self.reserved = 0
        self.chosen: list[str] = []
        self.refusal: Exception | None = None  # what the next calls of the broken replica end with
        self.refuses_at_once = False
        self.broken = ""

    @asynccontextmanager
    async def choose_replica(self, *, exclude=(), withdrawn=None):
        if not self.holds:
            await asyncio.sleep(60)
        name = next((name for name in self.holds if name not in exclude), next(iter(self.holds)))
        self.chosen.append(name)
        self.reserved += 1
        try:
            yield SimpleNamespace(replica_id=name)
        finally:
            self.reserved -= 1

    def dispatch(self, selection, key) -> Hold:
        if self.refusal is None or selection.replica_id != self.broken:
            return Hold(self.holds[selection.replica_id].hold(key))
        if self.refuses_at_once:
            raise self.refusal
        return Hold(self._refuse())

    async def _refuse(self) -> bool:
        raise self.refusal


@asynccontextmanager
async def _fleet(*, max_taken: int = 10, **backends: StubBackend):
    handle, membership = Handle(), Membership()
    async with contextlib.AsyncExitStack() as stack:
        members = []
        for name, backend in backends.items():
            holds = handle.holds[name] = HoldRegistry(open_within_s=2.0)
            server = await stack.enter_async_context(serving(TargetServicer(backend, holds)))
            metadata = peer_metadata(server.address, TOKEN, identity=encode_identity(IDENTITY))
            members.append(ReplicaInfo(name, metadata))
        metrics = Metrics(strict=True)
        pool = ServeTargetPool(handle, membership, peer=PEER, max_taken=max_taken, metrics=metrics)
        membership.record(TARGET, members)
        await until(lambda: pool.snapshot().ready)
        try:
            yield SimpleNamespace(pool=pool, handle=handle, membership=membership, members=members, metrics=metrics)
        finally:
            await pool.close()


def _stream(fleet, request):
    return stream_answer(fleet.pool, request, PlaceWish())


async def _ids(stream) -> list[int]:
    return [token async for batch in stream for chunk in batch for token in chunk.token_ids]


async def test_a_place_is_held_for_exactly_as_long_as_the_stream():
    """While tokens flow one place is reserved and one hold is open; both end with the stream."""
    backend = StubBackend(pause_s=0.005)
    async with _fleet(a=backend) as fleet:
        stream = _stream(fleet, generation())
        await anext(stream)
        assert (fleet.handle.reserved, fleet.handle.holds["a"].num_held) == (1, 1)

        ids = await _ids(stream)

        assert len(ids) == 7
        await until(lambda: fleet.handle.reserved == 0)
        assert fleet.handle.holds["a"].num_held == 0


async def test_a_closed_stream_ends_the_attempt_and_its_hold():
    """A client that leaves frees the engine, the hold and the place."""
    backend = StubBackend(pause_s=0.005)
    async with _fleet(a=backend) as fleet:
        stream = _stream(fleet, generation(max_tokens=1000))
        await anext(stream)
        await stream.aclose()

        await until(lambda: fleet.handle.reserved == 0 and not backend.running)
        assert fleet.handle.holds["a"].num_held == 0


async def test_a_request_cancelled_before_its_first_token_frees_everything():
    """Nothing waits for the hold of a stream that never was."""
    backend = StubBackend()
    backend.before_first = asyncio.Event()
    async with _fleet(a=backend) as fleet:
        request = asyncio.create_task(anext(_stream(fleet, generation())))
        await until(lambda: bool(backend.running))
        request.cancel()
        with pytest.raises(asyncio.CancelledError):
            await request

        await until(lambda: fleet.handle.reserved == 0 and not backend.running, timeout_s=1.0)


async def test_an_attempt_that_fails_before_its_first_token_goes_to_another_replica():
    """A broken replica costs the client nothing, and is avoided afterwards."""
    broken = StubBackend(error=TargetUnavailableError("it is going down"))
    healthy = StubBackend()
    async with _fleet(a=broken, b=healthy) as fleet:
        first = await _ids(_stream(fleet, generation("x/1")))
        second = await _ids(_stream(fleet, generation("y/1")))

        assert len(first) == len(second) == 8
        assert fleet.handle.chosen == ["a", "b", "b"]
        assert healthy.ended == ["x/2", "y/1"]


async def test_a_gateway_that_is_full_still_tries_another_replica():
    """A request's own earlier place does not count against its next attempt."""
    broken = StubBackend(error=TargetUnavailableError("it is going down"))
    async with _fleet(max_taken=1, a=broken, b=StubBackend()) as fleet:
        assert len(await _ids(_stream(fleet, generation("x/1")))) == 8
        assert fleet.handle.chosen == ["a", "b"]


async def test_a_fleet_of_broken_replicas_is_an_error_in_the_end():
    """Attempts are few, so that a request that breaks replicas does not walk the fleet."""
    broken = StubBackend(error=TargetUnavailableError("it is going down"))
    async with _fleet(a=broken) as fleet:
        with pytest.raises(TargetUnavailableError):
            await _ids(_stream(fleet, generation()))

        assert len(fleet.handle.chosen) == 3
        await until(lambda: fleet.handle.reserved == 0)


@pytest.mark.parametrize("at_once", [True, False])
async def test_a_stream_whose_hold_is_refused_goes_to_another_replica(at_once):
    """No stream runs without a request at Ray Serve, which could not count it otherwise."""
    slow, healthy = StubBackend(), StubBackend()
    slow.before_first = asyncio.Event()  # never: the refusal must be enough
    async with _fleet(a=slow, b=healthy) as fleet:
        fleet.handle.refusal, fleet.handle.broken = ReplicaUnavailableError("a is gone"), "a"
        fleet.handle.refuses_at_once = at_once
        ids = await asyncio.wait_for(_ids(_stream(fleet, generation("x/1"))), 5)

        assert len(ids) == 8
        assert fleet.handle.chosen == ["a", "b"]
        await until(lambda: not slow.running and fleet.handle.reserved == 0)


async def test_a_hold_that_ends_first_because_all_is_done_is_no_failure():
    """A short answer may be over on the replica before its tokens arrive here."""
    async with _fleet(a=StubBackend(per_batch=8)) as fleet:
        for number in range(20):
            assert len(await _ids(_stream(fleet, generation(f"r{number}/1")))) == 8

        assert len(fleet.handle.chosen) == 20


async def test_without_targets_one_patience_is_all(monkeypatch):
    """A request that has waited for a place in vain does not wait again."""
    async with _fleet(a=StubBackend()) as fleet:
        fleet.membership.record(TARGET, [])
        fleet.handle.holds.clear()
        await until(lambda: not fleet.pool.snapshot().ready)
        fleet.pool._slots._patience_s = 0.05
        started = asyncio.get_running_loop().time()
        with pytest.raises(TargetUnavailableError):
            await _ids(_stream(fleet, generation()))

        assert asyncio.get_running_loop().time() - started < 0.1


async def test_gauges_are_right_when_all_is_over():
    """The last thing that the gauges were told is that nothing waits and nothing runs."""
    async with _fleet(a=StubBackend(pause_s=0.005)) as fleet:
        stream = _stream(fleet, generation(max_tokens=1000))
        await anext(stream)
        assert metric_value(fleet.metrics.render(), catalogue.OPEN_STREAMS) == 1
        await stream.aclose()
        await until(lambda: fleet.handle.reserved == 0)

        assert metric_value(fleet.metrics.render(), catalogue.OPEN_STREAMS) == 0
        assert metric_value(fleet.metrics.render(), catalogue.QUEUED_REQUESTS) == 0


async def test_a_refused_request_is_not_repeated():
    """What the engine refuses for the client's fault is told at once."""
    backend = StubBackend(error=ContextLengthExceededError(5, 5, 8))
    async with _fleet(a=backend) as fleet:
        with pytest.raises(ContextLengthExceededError):
            await _ids(_stream(fleet, generation()))

        assert fleet.handle.chosen == ["a"]


async def test_a_replica_that_leaves_finishes_its_streams():
    """Draining: the stream on a replica that left membership runs to its end."""
    backend = StubBackend(pause_s=0.005)
    async with _fleet(a=backend) as fleet:
        stream = _stream(fleet, generation(max_tokens=20))
        await anext(stream)
        fleet.membership.record(TARGET, [])
        await asyncio.sleep(0.02)

        assert len(await _ids(stream)) == 19
        assert not fleet.pool.snapshot().ready


async def test_the_snapshot_adds_up_what_targets_report():
    """Queued and running are sums; a drafter group that is live for any target is live."""
    one, two = StubBackend(), StubBackend()
    one.load = TargetLoad(2, 1, 8, 8, 0.0, (DrafterGroupStatus("ngram", "ngram", live=False, detail="no replica"),))
    two.load = TargetLoad(3, 0, 8, 8, 0.0, (DrafterGroupStatus("ngram", "ngram", live=True),))
    async with _fleet(a=one, b=two) as fleet:
        await until(lambda: fleet.pool.snapshot().running == 5)
        snapshot = fleet.pool.snapshot()

    assert snapshot.queued == 1
    assert [(group.name, group.live) for group in snapshot.drafter_groups] == [("ngram", True)]
    assert fleet.pool.identity == IDENTITY


async def test_a_replica_with_a_new_address_is_reached_there():
    """What a replica publishes under its old id replaces what was known."""
    backend = StubBackend()
    async with (
        _fleet(a=StubBackend(error=TargetUnavailableError("the old one"))) as fleet,
        serving(TargetServicer(backend, fleet.handle.holds["a"])) as server,
    ):
        metadata = peer_metadata(server.address, TOKEN, identity=encode_identity(IDENTITY))
        fleet.membership.record(TARGET, [ReplicaInfo("a", metadata)])
        await asyncio.sleep(0)

        assert len(await _ids(_stream(fleet, generation("x/1")))) == 8
        assert backend.ended == ["x/1"]


async def test_a_chosen_replica_may_become_known_a_moment_later():
    """Ray Serve may hand out a new replica before the gateway's loop has heard of it."""
    async with _fleet(a=StubBackend()) as fleet:
        fleet.membership.record(TARGET, [])
        await until(lambda: not fleet.pool.snapshot().ready)
        answer = asyncio.create_task(_ids(_stream(fleet, generation("x/1"))))
        await until(lambda: bool(fleet.handle.chosen))
        fleet.membership.record(TARGET, fleet.members)

        assert len(await answer) == 8
        assert fleet.handle.chosen == ["a"]


async def test_a_closed_pool_keeps_no_connection():
    """Replicas that were finishing their streams are closed too, and later news opens nothing."""
    backend = StubBackend(pause_s=0.005)
    async with _fleet(a=backend) as fleet:
        stream = _stream(fleet, generation(max_tokens=100_000))
        await anext(stream)
        fleet.membership.record(TARGET, [])
        await until(lambda: not fleet.pool.snapshot().ready)
        (retiring,) = fleet.pool._retiring
        await fleet.pool.close()
        fleet.membership.record(TARGET, fleet.members)
        await asyncio.sleep(0.05)

        assert retiring.done()
        await until(lambda: not backend.running)
        assert fleet.pool._peers == {}
        await stream.aclose()
