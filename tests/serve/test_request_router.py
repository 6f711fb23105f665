"""The router's choice, on replicas that are no more than a name; no Ray is started."""

import asyncio
import threading
from inspect import signature
from types import SimpleNamespace

import pytest
from ray import cloudpickle
from ray.exceptions import ActorUnavailableError
from ray.serve.request_router import RequestRouter, RunningReplica

from paceline_serve import request_router
from paceline_serve.request_router import PeerRouter, PromptReplica


def _replica(name: str):
    return SimpleNamespace(replica_id=SimpleNamespace(unique_id=name))


_REPLICAS = [_replica(name) for name in "abc"]


async def _ranks(**hints) -> list[set[str]]:
    router = object.__new__(PeerRouter)
    ranks = await router.choose_replicas(_REPLICAS, SimpleNamespace(kwargs=hints))
    return [{replica.replica_id.unique_id for replica in rank} for rank in ranks]


async def test_without_hints_every_replica_will_do():
    """All replicas are candidates; Ray Serve takes the least loaded."""
    assert await _ranks() == [set(), {"a", "b", "c"}]


async def test_preferred_replicas_come_first_and_others_after():
    """A preference yields to load: the others are the next rank."""
    assert await _ranks(prefer=("b",)) == [{"b"}, {"a", "b", "c"}]


async def test_excluded_replicas_are_left_out():
    """A replica that has just failed is not asked again while there are others."""
    assert await _ranks(exclude=lambda: {"a"}, prefer=("a", "b")) == [{"b"}, {"b", "c"}]


async def test_excluding_everybody_excludes_nobody():
    """Better a replica that has just failed than no answer."""
    assert await _ranks(exclude=lambda: {"a", "b", "c"}) == [set(), {"a", "b", "c"}]


async def test_wishes_are_asked_anew_at_every_try():
    """A request may wait here for minutes; what was wrong with a replica when it came need not be so any more."""
    router, excluded = object.__new__(PeerRouter), {"a"}
    pending = SimpleNamespace(kwargs={"exclude": lambda: excluded})
    ranks = [len((await router.choose_replicas(_REPLICAS, pending))[1])]
    excluded.clear()
    ranks.append(len((await router.choose_replicas(_REPLICAS, pending))[1]))

    assert ranks == [2, 3]


async def test_a_replica_that_stands_still_is_passed_over(monkeypatch):
    """Ray Serve tries another one upon this error; it would itself wait for the answer as long as the process is."""

    async def never(_self, _metadata):
        await asyncio.sleep(60)

    monkeypatch.setattr(RunningReplica, "reserve_slot", never)
    monkeypatch.setattr(request_router, "_RESERVED_WITHIN_S", 0.05)
    with pytest.raises(ActorUnavailableError):
        await asyncio.wait_for(object.__new__(PromptReplica).reserve_slot(None), 5)


def test_replicas_are_talked_to_within_limits(monkeypatch):
    """The router builds what has the limit, also after it has travelled to another process by value."""
    assert list(signature(RunningReplica.reserve_slot).parameters) == ["self", "request_metadata"]
    assert list(signature(RequestRouter.create_replica_wrapper).parameters) == ["self", "replica_info"]
    monkeypatch.setattr(RunningReplica, "__init__", lambda _self, _info: None)
    copy = cloudpickle.loads(cloudpickle.dumps(PeerRouter))

    assert type(object.__new__(copy).create_replica_wrapper(None)).__name__ == "PromptReplica"


async def test_ties_go_to_a_random_replica():
    """Ray Serve takes the first of equally loaded replicas, so their order must differ between requests."""
    router = object.__new__(PeerRouter)
    firsts = {(await router.choose_replicas(_REPLICAS))[1][0].replica_id.unique_id for _ in range(100)}

    assert firsts == {"a", "b", "c"}


@pytest.mark.parametrize("pending", [None])
async def test_a_choice_without_a_request_works(pending):
    """Ray Serve may ask before it knows the request."""
    ranks = await object.__new__(PeerRouter).choose_replicas(_REPLICAS, pending)

    assert len(ranks[1]) == 3


async def test_a_withdrawn_request_leaves_the_queue():
    """Its future is cancelled at the next try; there is still a rank, without which Ray Serve would not look at it."""
    router, withdrawn = object.__new__(PeerRouter), threading.Event()
    pending = SimpleNamespace(kwargs={"withdrawn": withdrawn}, future=asyncio.get_running_loop().create_future())
    await router.choose_replicas(_REPLICAS, pending)
    assert not pending.future.done()

    withdrawn.set()
    ranks = await router.choose_replicas(_REPLICAS, pending)

    assert pending.future.cancelled()
    assert len(ranks[1]) == 3
