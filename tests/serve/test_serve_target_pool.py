"""The pool on real target servers in this process; Ray Serve's handle is a stand-in with the same two methods."""

import asyncio
import contextlib
import dataclasses
from contextlib import asynccontextmanager
from types import SimpleNamespace

import pytest
from ray.serve.exceptions import ReplicaUnavailableError

from paceline.config.schema import PeerConfig, Tunables
from paceline.core.load import DrafterGroupStatus, TargetLoad
from paceline.errors import (
    ContextLengthExceededError,
    EngineFailedError,
    TargetLeavingError,
    TargetLostError,
    TargetUnavailableError,
)
from paceline.gateway.answer_progress import AnswerProgress
from paceline.gateway.answer_stream import AnswerStreams
from paceline.gateway.target_pool import PlaceWish
from paceline.routing import target_choice
from paceline.rpc.drain_flag import DrainFlag
from paceline.rpc.holds import HoldRegistry
from paceline.rpc.peer_server import PeerServer
from paceline.rpc.target_server import TargetServicer
from paceline.telemetry import catalogue
from paceline.telemetry.metrics import Metrics
from paceline_serve import departure, serve_target_pool
from paceline_serve.membership import Membership, ReplicaInfo
from paceline_serve.metric_values import metric_value
from paceline_serve.names import TARGET
from paceline_serve.peer_metadata import encode_identity, peer_metadata
from paceline_serve.serve_target_pool import ServeTargetPool
from peers import IDENTITY, LOOPBACK, PEER, TOKEN, StubBackend, generation, serving, until


@pytest.fixture(autouse=True)
def _short_spread(monkeypatch):
    monkeypatch.setattr(departure, "_SPREAD_S", 0.2)


class Hold:
    """A hold that runs on a replica; what a Serve handle's response is."""

    def __init__(self, work) -> None:
        self.task = asyncio.ensure_future(work)

    def __await__(self):
        return self.task.__await__()

    def cancel(self) -> None:
        self.task.cancel()


class Handle:
    """``handle.hold``: gives out the first replica that is not excluded; a preferred one where ``heeds`` says so."""

    def __init__(self) -> None:
        self.holds: dict[str, HoldRegistry] = {}
        self.draining: dict[str, DrainFlag] = {}
        self.reserved = 0
        self.chosen: list[str] = []
        self.refusal: Exception | None = None  # what the next calls of the broken replica end with
        self.refuses_at_once = False
        self.broken = ""
        self.on_choice = lambda: None
        self.only: str | None = None
        self.heeds = False

    def hold_to(self, name: str | None) -> None:
        """Give out this replica only."""
        self.only = name

    @asynccontextmanager
    async def choose_replica(self, *, prefer, exclude, withdrawn):
        if not self.holds:
            await asyncio.sleep(60)
        usable = [
            name
            for name in (*(prefer if self.heeds else ()), *self.holds)
            if name not in exclude() and self.only in (None, name)
        ]
        name = usable[0] if usable else next(iter(self.holds))
        self.on_choice()
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


@dataclasses.dataclass
class Fleet:
    """A gateway's pool and what it works with."""

    pool: ServeTargetPool
    handle: Handle
    membership: Membership
    members: dict[str, ReplicaInfo]
    metrics: Metrics
    servers: dict[str, PeerServer]

    def list_replicas(self, *names: str) -> None:
        """What Ray Serve pushes."""
        self.membership.record(TARGET, [self.members[name] for name in names])

    async def all_reported(self) -> None:
        peers = self.pool._fleet._peers
        await until(lambda: len(peers) == len(self.members) and all(target.load for target in peers.values()))


@asynccontextmanager
async def _fleet(*, max_taken: int = 10, migrate_after_s: float = 60.0, **backends: StubBackend):
    handle, membership = Handle(), Membership()
    async with contextlib.AsyncExitStack() as stack:
        members, servers = {}, {}
        for name, backend in backends.items():
            draining = handle.draining[name] = DrainFlag()
            holds = handle.holds[name] = HoldRegistry(
                30.0, draining
            )  # longer than a test waits: no hold ends by itself
            server = servers[name] = await stack.enter_async_context(serving(TargetServicer(backend, holds)))
            metadata = peer_metadata(server.address, TOKEN, identity=encode_identity(backend.identity))
            members[name] = ReplicaInfo(name, metadata)
        metrics = Metrics(strict=True)
        pool = ServeTargetPool(
            handle,
            membership,
            peer=PEER,
            max_taken=max_taken,
            metrics=metrics,
            serves=lambda identity: identity.name == IDENTITY.name,
            migrate_after_s=migrate_after_s,
        )
        fleet = Fleet(pool, handle, membership, members, metrics, servers)
        fleet.list_replicas(*members)
        await fleet.all_reported()
        try:
            yield fleet
        finally:
            await pool.close()


def _stream(fleet, request):
    """A whole answer, over as many attempts as it takes."""
    answers = AnswerStreams(fleet.pool, fleet.metrics)
    return answers.stream(request, PlaceWish(), AnswerProgress(request.num_choices), lambda plan: plan)


async def _take(fleet, wish) -> str:
    async with fleet.pool.place(wish) as place:
        return place.replica_id


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


@pytest.mark.parametrize("error", [TargetUnavailableError("it is going down"), EngineFailedError("a step raised")])
async def test_an_attempt_that_fails_before_its_first_token_goes_to_another_replica(error):
    """A broken replica costs the client nothing, and is avoided afterwards."""
    broken = StubBackend(error=error)
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


async def test_a_request_that_no_replica_suits_neither_spins_nor_keeps_a_place():
    """It waits with pauses that grow, and whoever can use the replica gets it meanwhile."""
    async with _fleet(a=StubBackend()) as fleet:
        picky = asyncio.create_task(_take(fleet, PlaceWish(resumed=True, exclude=frozenset({"a"}))))
        await asyncio.sleep(0.5)
        asked = len(fleet.handle.chosen)
        assert 1 <= asked <= 20
        assert fleet.handle.reserved == 0

        assert len(await _ids(_stream(fleet, generation("x/1")))) == 8

        assert not picky.done()
        picky.cancel()
        await asyncio.gather(picky, return_exceptions=True)
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


async def test_without_targets_one_patience_is_all():
    """A request that has waited for a place in vain does not wait again."""
    async with _fleet(a=StubBackend()) as fleet:
        fleet.list_replicas()
        fleet.handle.holds.clear()
        await until(lambda: not fleet.pool.snapshot().ready)
        fleet.pool.apply_tunables(Tunables(max_queue_wait_s=0.05))
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
        fleet.list_replicas()
        await asyncio.sleep(0.02)

        assert len(await _ids(stream)) == 19
        assert not fleet.pool.snapshot().ready


@pytest.mark.parametrize("how", ["it leaves", "it drains"])
async def test_answers_move_off_a_replica_that_is_about_to_go(how):
    """After ``migrate_after_s`` every answer there goes on at another replica, without a token missing or twice."""
    leaving, staying = StubBackend(pause_s=0.02), StubBackend(per_batch=10)
    async with _fleet(migrate_after_s=0.2, a=leaving, b=staying) as fleet:
        fleet.handle.hold_to("a")
        streams = [_stream(fleet, generation(f"r{number}/1", max_tokens=500)) for number in range(5)]
        firsts = [[token for chunk in await anext(stream) for token in chunk.token_ids] for stream in streams]
        assert len(leaving.running) == 5
        fleet.handle.hold_to(None)
        if how == "it leaves":
            fleet.list_replicas("b")
        else:
            fleet.handle.draining["a"].start()
        rests = await asyncio.gather(*(_ids(stream) for stream in streams))

        assert all(first + rest == list(range(500)) for first, rest in zip(firsts, rests, strict=True))
        assert sorted(staying.ended) == [f"r{number}/2" for number in range(5)]
        await until(lambda: not leaving.running and fleet.handle.reserved == 0)


@pytest.mark.parametrize("other", ["none", "another model", "another fingerprint", "silent"])
async def test_an_answer_that_cannot_go_on_elsewhere_stays(other):
    """Without a replica of the same fingerprint that is heard of, the answer runs to its end where it is."""
    leaving, there = StubBackend(pause_s=0.01), StubBackend()
    if other == "another model":
        there.identity = dataclasses.replace(IDENTITY, name="n")
    elif other == "another fingerprint":
        there.identity = dataclasses.replace(IDENTITY, system_fingerprint="new")
    async with _fleet(migrate_after_s=0.01, a=leaving, b=there) as fleet:
        fleet.handle.hold_to("a")
        stream = _stream(fleet, generation(max_tokens=100))
        await anext(stream)
        fleet.list_replicas(*(() if other == "none" else ("b",)))
        if other == "silent":
            target = fleet.pool._fleet.find("b")
            target._watching.cancel()
            target._reported_at -= 10

        assert len(await _ids(stream)) == 99
        assert leaving.ended == ["r/1"]


async def test_an_answer_moves_as_soon_as_another_replica_is_there():
    """A replica that is replaced alone keeps its answers until its successor is up."""
    leaving, late = StubBackend(pause_s=0.01), StubBackend(per_batch=10)
    async with _fleet(migrate_after_s=0.01, a=leaving, b=late) as fleet:
        fleet.handle.hold_to("a")
        fleet.list_replicas("a")
        stream = _stream(fleet, generation(max_tokens=1000))
        await anext(stream)
        fleet.list_replicas()
        await asyncio.sleep(0.5)
        assert leaving.running == {"r/1"}
        fleet.handle.hold_to("b")
        fleet.list_replicas("b")

        assert len(await _ids(stream)) == 999
        assert late.ended == ["r/2"]


async def test_a_replica_that_is_listed_again_keeps_its_answers():
    """A controller that restarts lists nobody for a while: no answer moves, no second connection is opened."""
    backend = StubBackend(pause_s=0.01)
    async with _fleet(migrate_after_s=0.3, a=backend, b=StubBackend()) as fleet:
        fleet.handle.hold_to("a")
        stream = _stream(fleet, generation(max_tokens=100))
        await anext(stream)
        target = fleet.pool._fleet.find("a")
        fleet.list_replicas("b")
        await until(lambda: target.is_leaving)
        fleet.list_replicas("a", "b")
        await until(lambda: not target.is_leaving)

        assert len(await _ids(stream)) == 99
        assert backend.ended == ["r/1"]
        assert fleet.pool._fleet.find("a") is target
        assert len(await _ids(_stream(fleet, generation("s/1")))) == 8


async def test_a_replica_that_dies_while_it_leaves_is_no_fault_of_the_request(monkeypatch):
    """What breaks off there then counts as a move, not as a loss."""
    monkeypatch.setattr(serve_target_pool, "_KNOWN_FOR_S", 0.0)
    backend = StubBackend(pause_s=0.01)
    async with _fleet(a=backend) as fleet, fleet.pool.place(PlaceWish()) as place:
        stream = place.stream(generation(max_tokens=10_000))
        await anext(stream)
        fleet.list_replicas()
        await until(lambda: not fleet.pool.snapshot().ready)
        await asyncio.sleep(0.01)
        await fleet.servers["a"].stop(0.0)
        with pytest.raises(TargetLeavingError):
            await _ids(stream)


async def test_a_replica_that_dies_is_lost():
    """The request may be why, so that it counts against it."""
    backend = StubBackend(pause_s=0.01)
    async with _fleet(a=backend) as fleet, fleet.pool.place(PlaceWish()) as place:
        stream = place.stream(generation(max_tokens=10_000))
        await anext(stream)
        await fleet.servers["a"].stop(0.0)
        with pytest.raises(TargetLostError):
            await _ids(stream)


async def test_a_replica_that_leaves_between_place_and_stream_is_left_alone():
    """The request hears at once that it had better go elsewhere."""
    backend = StubBackend()
    async with _fleet(a=backend) as fleet, fleet.pool.place(PlaceWish()) as place:
        fleet.list_replicas()
        await until(lambda: not fleet.pool.snapshot().ready)
        with pytest.raises(TargetLeavingError):
            place.identity  # noqa: B018  # a property that raises
        with pytest.raises(TargetLeavingError):
            await anext(place.stream(generation()))

        assert backend.ended == []


async def test_requests_go_to_the_less_loaded_replica():
    """Load that other gateways have put on a replica counts, as its reports tell it."""
    busy, idle = StubBackend(), StubBackend()
    busy.load = TargetLoad(50, 0, 8, 8, 0.0)
    async with _fleet(a=busy, b=idle) as fleet:
        fleet.handle.heeds = True
        for number in range(5):
            assert len(await _ids(_stream(fleet, generation(f"r{number}/1")))) == 8

        assert fleet.handle.chosen == ["b"] * 5


async def test_replicas_that_failed_or_are_silent_are_left_out_while_there_are_better_ones(monkeypatch):
    """Ray Serve would choose one that stands still: nothing runs there. None is left out for good, nor are all."""
    async with _fleet(a=StubBackend(), b=StubBackend()) as fleet:
        pool_fleet = fleet.pool._fleet
        assert pool_fleet.excluded(PlaceWish()) == set()

        pool_fleet.failed("a")
        assert pool_fleet.excluded(PlaceWish()) == {"a"}
        pool_fleet.failed("b")
        assert pool_fleet.excluded(PlaceWish()) == set()
        assert pool_fleet.excluded(PlaceWish(exclude=frozenset({"b", "z"}))) == {"b", "z"}

        monkeypatch.setattr(target_choice, "_AVOID_S", 0.0)
        pool_fleet.failed("a")
        pool_fleet.failed("b")
        silent = pool_fleet.find("b")
        silent._watching.cancel()
        silent._reported_at -= 10
        assert pool_fleet.excluded(PlaceWish()) == {"b"}
        assert pool_fleet.preferred(PlaceWish()) == "a"


async def test_a_replica_that_was_silent_is_used_again_when_it_speaks():
    """Its reports are asked for again and again, for as long as Ray Serve lists it."""
    backend = StubBackend()
    async with _fleet(a=backend) as fleet:
        server = fleet.servers["a"]
        port = int(server.address.rpartition(":")[2])
        await server.stop(0.0)
        fleet.pool._fleet.find("a")._reported_at -= 10
        assert not fleet.pool.snapshot().ready
        again = PeerServer(
            PeerConfig(port_min=port, port_max=port),
            node_ip=LOOPBACK,
            token=TOKEN,
            servicers=[TargetServicer(backend, fleet.handle.holds["a"])],
        )
        await again.start()
        await until(lambda: fleet.pool.snapshot().ready, timeout_s=10)

        assert len(await _ids(_stream(fleet, generation("x/1")))) == 8
        await again.stop(0.0)


async def test_only_replicas_of_the_gateways_own_model_are_used():
    """While the model is changed, old gateways use old targets: what their tokenizer makes means nothing to others."""
    new = StubBackend()
    new.identity = dataclasses.replace(IDENTITY, name="n")
    async with _fleet(b=new, a=StubBackend()) as fleet:
        assert fleet.pool.identity == IDENTITY
        for number in range(3):
            assert len(await _ids(_stream(fleet, generation(f"r{number}/1")))) == 8
        assert new.ended == []

        fleet.list_replicas("b")
        await until(lambda: fleet.pool._fleet._peers.keys() == {"b"})

        assert fleet.pool.identity == IDENTITY
        assert not fleet.pool.snapshot().ready


async def test_a_place_can_be_asked_for_by_fingerprint():
    """An answer that has begun goes on only where a seed gives the same tokens; each place knows what it serves."""
    new = StubBackend()
    new.identity = dataclasses.replace(IDENTITY, system_fingerprint="new")
    async with _fleet(a=StubBackend(), b=new) as fleet:
        for fingerprint, name in (("new", "b"), (IDENTITY.system_fingerprint, "a")):
            async with fleet.pool.place(PlaceWish(fingerprint=fingerprint)) as place:
                assert place.replica_id == name
                assert place.identity.system_fingerprint == fingerprint


async def test_a_replica_that_speaks_no_common_protocol_is_not_used():
    """A release too far apart is passed over, not tried and failed."""
    async with _fleet(b=StubBackend(), a=StubBackend()) as fleet:
        fleet.list_replicas("a")
        await until(lambda: fleet.pool._fleet._peers.keys() == {"a"} and not fleet.pool._fleet._departing)
        fleet.members["b"] = ReplicaInfo("b", dict(fleet.members["b"].metadata) | {"protocol": [98, 99]})
        fleet.list_replicas("b", "a")
        await until(lambda: "b" in fleet.pool._fleet._peers)

        assert [await _take(fleet, PlaceWish()) for _ in range(3)] == ["a", "a", "a"]


@pytest.mark.parametrize("slow", [False, True])
async def test_a_gateway_that_gives_up_at_any_moment_leaves_nothing(slow):
    """However far a request has got when it is cancelled: no place, no hold, no running attempt is left."""
    backend = StubBackend(pause_s=0.0005)
    if slow:
        backend.before_first = asyncio.Event()
    async with _fleet(max_taken=1000, a=backend) as fleet:
        for moment in range(0, 120, 3):
            answer = asyncio.create_task(_ids(_stream(fleet, generation(f"r{moment}/1", max_tokens=100_000))))
            for _ in range(moment):
                await asyncio.sleep(0)
            answer.cancel()
            with pytest.raises(asyncio.CancelledError):
                await answer

        await until(lambda: fleet.handle.reserved == 0)
        await until(lambda: not backend.running and fleet.handle.holds["a"].num_held == 0)
        assert metric_value(fleet.metrics.render(), catalogue.OPEN_STREAMS) == 0
        await until(lambda: fleet.pool._fleet._choice.load_of("a").score == 0)
        assert fleet.pool._fleet.find("a").num_staying == 0


async def test_the_snapshot_adds_up_what_targets_report():
    """Queued and running are sums; a drafter group that is live for any target is live, its gain the mean."""
    one, two = StubBackend(), StubBackend()
    down = DrafterGroupStatus("ngram", "ngram", live=False, detail="no replica", gain=1.5)
    new = DrafterGroupStatus("new", "ngram", live=True)
    one.load = TargetLoad(2, 1, 8, 8, 0.0, (down, new))
    two.load = TargetLoad(3, 0, 8, 8, 0.0, (DrafterGroupStatus("ngram", "ngram", live=True, gain=2.0), new))
    async with _fleet(a=one, b=two) as fleet:
        await until(lambda: fleet.pool.snapshot().running == 5)
        snapshot = fleet.pool.snapshot()

    assert snapshot.queued == 1
    assert [(group.name, group.live) for group in snapshot.drafter_groups] == [("ngram", True), ("new", True)]
    assert [group.gain for group in snapshot.drafter_groups] == [1.75, None]
    assert fleet.pool.identity == IDENTITY


async def test_without_fresh_reports_the_groups_keep_their_names():
    """A request that names a group is not turned away because no target has reported lately."""
    target = StubBackend()
    target.load = TargetLoad(0, 0, 8, 8, 0.0, (DrafterGroupStatus("ngram", "ngram", live=True),))
    async with _fleet(a=target) as fleet:
        await until(lambda: bool(fleet.pool.snapshot().drafter_groups))
        fleet.list_replicas()
        await until(lambda: not fleet.pool.snapshot().ready)

        assert [group.name for group in fleet.pool.snapshot().drafter_groups] == ["ngram"]


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


async def test_a_replica_may_be_chosen_before_the_gateway_has_heard_of_it():
    """Ray Serve's router learns of a new replica first, on a thread of its own, and may choose it at once."""
    async with _fleet(a=StubBackend(), b=StubBackend()) as fleet:
        fleet.list_replicas("b")
        await until(lambda: fleet.pool._fleet._peers.keys() == {"b"})
        fleet.handle.on_choice = lambda: fleet.list_replicas("a", "b")
        place = fleet.pool.place(PlaceWish(exclude=frozenset({"b"})))

        async with place as taken:
            assert taken.replica_id == "a"
            assert taken.identity == IDENTITY
            assert len(await _ids(taken.stream(generation("x/1")))) == 8

        assert fleet.handle.chosen == ["a"]


async def test_a_closed_pool_keeps_no_connection():
    """Replicas that were finishing their streams are closed too, and later news opens nothing."""
    backend = StubBackend(pause_s=0.005)
    async with _fleet(a=backend) as fleet, fleet.pool.place(PlaceWish()) as place:
        stream = place.stream(generation(max_tokens=100_000))
        await anext(stream)
        fleet.list_replicas()
        await until(lambda: not fleet.pool.snapshot().ready)
        await fleet.pool.close()
        fleet.list_replicas("a")
        await asyncio.sleep(0.05)

        assert fleet.pool._fleet._peers == {}
        assert all(task.done() for task in fleet.pool._fleet._departing.values())
        await until(lambda: not backend.running)
        with pytest.raises(TargetUnavailableError):
            await _ids(stream)
