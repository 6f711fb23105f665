"""Which links a target has, as the settings that it is given change."""

import pytest

from paceline.config.schema import PeerConfig
from paceline.telemetry.metrics import Metrics
from paceline_serve import target_drafters
from paceline_serve.membership import Membership, ReplicaInfo
from paceline_serve.target_drafters import DrafterLinks
from peers import TARGET


class Link:
    """A link that goes nowhere."""

    def __init__(self, group: str, *, method: str, **_parts) -> None:
        self.group, self.method = group, method
        self.addresses: list[str] = []
        self.is_shut = False

    def set_endpoints(self, endpoints) -> None:
        self.addresses = [endpoint.address for endpoint in endpoints]

    def shutdown(self) -> None:
        self.is_shut = True


class EngineOfATarget:
    """Takes groups up and lets them go; `let_go` is when its thread gets round to it."""

    def __init__(self) -> None:
        self.links: dict[str, Link] = {}
        self._leaving = []

    def add_drafter(self, group: str, drafter: Link) -> None:
        assert group not in self.links
        self.links[group] = drafter

    def remove_drafter(self, group: str, then) -> None:
        del self.links[group]
        self._leaving.append(then)

    def let_go(self) -> None:
        while self._leaving:
            self._leaving.pop()()


@pytest.fixture(name="parts")
async def _parts(monkeypatch):
    monkeypatch.setattr(target_drafters, "RemoteDrafter", Link)
    engine, membership, watched = EngineOfATarget(), Membership(), []
    links = DrafterLinks(
        engine, TARGET, peer=PeerConfig(), membership=membership, metrics=Metrics(), watch=watched.append
    )
    return links, engine, membership, watched


def _replica(address: str) -> list[ReplicaInfo]:
    return [ReplicaInfo("r", {"address": address, "token": "t", "protocol": [1, 2]})]


async def test_links_follow_the_groups_replicas(parts):
    """A group is looked for from the moment that it is named, and its replicas are those that Ray Serve pushes."""
    links, engine, membership, watched = parts
    links.apply({"a": "ngram", "b": "draft_model"})
    membership.record("drafter-a", _replica("127.0.0.1:1"))

    assert watched == ["a", "b"]
    assert [(link.group, link.method) for link in engine.links.values()] == [("a", "ngram"), ("b", "draft_model")]
    assert engine.links["a"].addresses == ["127.0.0.1:1"]
    assert engine.links["b"].addresses == []


async def test_what_is_unchanged_keeps_its_link(parts):
    """Settings are applied anew with every changed tunable."""
    links, engine, _, _ = parts
    links.apply({"a": "ngram"})
    before = engine.links["a"]

    links.apply({"a": "ngram", "b": "ngram"})

    assert engine.links["a"] is before


async def test_a_group_that_has_left_is_let_go_before_its_link_is_shut(parts):
    """Its sessions end over the link."""
    links, engine, _, _ = parts
    links.apply({"a": "ngram"})
    link = engine.links["a"]

    links.apply({})

    assert engine.links == {}
    assert not link.is_shut
    engine.let_go()
    assert link.is_shut


async def test_a_group_that_has_left_is_followed_no_longer(parts):
    """However often groups come and go, nothing of the former ones stays."""
    links, engine, membership, _ = parts
    links.apply({"a": "ngram"})
    link = engine.links["a"]
    links.apply({})

    membership.record("drafter-a", _replica("127.0.0.1:4"))

    assert link.addresses == []


async def test_a_group_that_comes_back_gets_a_new_link_to_the_replicas_that_are_there(parts):
    """Ray Serve goes on telling of it meanwhile, so it is watched once."""
    links, engine, membership, watched = parts
    links.apply({"a": "ngram"})
    links.apply({})
    engine.let_go()
    membership.record("drafter-a", _replica("127.0.0.1:2"))

    links.apply({"a": "ngram"})

    assert watched == ["a"]
    assert engine.links["a"].addresses == ["127.0.0.1:2"]
    membership.record("drafter-a", _replica("127.0.0.1:3"))
    assert engine.links["a"].addresses == ["127.0.0.1:3"]


async def test_another_method_is_another_group(parts):
    """What was learned of the old one says nothing about it."""
    links, engine, _, _ = parts
    links.apply({"a": "ngram"})
    link = engine.links["a"]

    links.apply({"a": "draft_model"})
    engine.let_go()

    assert engine.links["a"].method == "draft_model"
    assert link.is_shut


async def test_closing_shuts_every_link(parts):
    """A target that goes leaves no connection behind."""
    links, engine, _, _ = parts
    links.apply({"a": "ngram", "b": "ngram"})

    links.close()

    assert all(link.is_shut for link in engine.links.values())
