"""Targets on one node and drafters on another, each node with an address of its own."""

import re
import signal
from collections.abc import Iterator
from concurrent.futures import Future
from typing import Any

import httpx
import psutil
import pytest

import nodes
from fleet import Fleet, Generated
from nodes import Nodes
from paceline.v1 import common_pb2, generation_pb2
from paceline_serve.local_ray import is_alive
from paceline_serve.ports import EVERY_ADDRESS

pytestmark = [pytest.mark.serve, pytest.mark.model, pytest.mark.timeout(500)]

_TARGETS, _DRAFTERS = "127.0.0.2", "127.0.0.3"
_PEER_PORTS = range(20000, 21000)
_CONFIG: dict[str, Any] = {
    # The session's platform of one node has the same model.
    "model": {"source": "smollm2-135m", "dtype": "bfloat16"},
    "engine": {"kv_cache_tokens": 16384, "max_running": 16, "threads": 1},
    "target": {"resources": {"targets": 0.1}},
    # As a cluster needs it: every node has a door of its own.
    "gateway": {"host": EVERY_ADDRESS, "resources": {"targets": 0.1}},
    "drafters": {"ngram": {"method": "ngram", "place": "remote", "resources": {"drafters": 0.1}}},
    "tunables": {"draft_adaptive": False, "draft_wait_share": 4},  # on a busy machine drafts would not pay
}
_SAID_TWICE = "Say it again: red, green, blue, red, green, blue, red, green, blue."


@pytest.fixture(scope="module")
def cluster(tmp_path_factory) -> Iterator[tuple[Fleet, Nodes]]:
    """The deployed fleet and the nodes that it runs on."""
    resources = {_TARGETS: {"targets": 1}, _DRAFTERS: {"drafters": 1}}
    with nodes.running(tmp_path_factory.mktemp("nodes"), resources) as (fleet, started):
        fleet.deploy(_CONFIG)
        _wait_drafter(fleet, live=True)
        yield fleet, started


def test_replicas_run_where_their_resources_are_and_use_their_nodes_address(cluster):
    """Their own servers listen on the node's address alone, and peers reach them there."""
    fleet, started = cluster
    gateway, target, drafter = (_replica(fleet, kind) for kind in ("Gateway", "Target", "drafter"))

    assert {gateway, target} < set(started.processes(_TARGETS))
    assert drafter in started.processes(_DRAFTERS)
    assert {host for process in (gateway, target) for host in _own_servers(process)} == {_TARGETS}
    assert _own_servers(drafter) == {_DRAFTERS}
    assert (_peers(gateway), _peers(target)) == ({_TARGETS}, {_DRAFTERS})


def test_drafts_cross_the_nodes(cluster):
    """A drafter on another node is used as one beside the target would be."""
    fleet, _ = cluster

    fleet.eventually(lambda: _num_accepted(fleet) > 0, "a draft that was kept", within_s=60)


def test_answers_are_those_of_one_node(cluster, platform):
    """Greedy, sampled and two choices at once: the text for a seed is what a single machine says."""
    fleet, _ = cluster
    requests = [
        {"max_tokens": 48, "speculation": {"mode": "on"}},
        {"max_tokens": 48, "temperature": 1.0, "seed": 7, "n": 2},
        {"max_tokens": 48, "temperature": 0.6, "top_p": 0.9, "seed": 11, "speculation": {"mode": "off"}},
    ]

    here = [platform.chat(_SAID_TWICE, **fields) for fields in requests]
    there = [fleet.ask(_SAID_TWICE, **fields) for fields in requests]

    assert [_contents(answer) for answer in there] == [_contents(answer) for answer in here]
    assert there[0]["system_fingerprint"] == here[0]["system_fingerprint"]


def test_a_drafter_node_that_stands_still_costs_no_request(cluster):
    """No packet comes from it for some seconds: running answers go on with the same ids, and it is used again after."""
    fleet, started = cluster
    undisturbed = [_answer(fleet, seed) for seed in range(4)]
    frozen = started.processes(_DRAFTERS)

    answers = _in_mid_answer(fleet, num_streams=4)
    try:
        _signal(frozen, signal.SIGSTOP)
        found = [answer.result() for answer in answers]
    finally:
        _signal(frozen, signal.SIGCONT)

    assert [answer.ids for answer in found] == [answer.ids for answer in undisturbed]
    _wait_drafter(fleet, live=True)


def test_killing_the_drafter_node_costs_no_request(cluster):
    """Running answers keep their ids, new ones run plain and say so, and a node that comes instead is used."""
    fleet, started = cluster
    undisturbed = [_answer(fleet, seed) for seed in range(6)]

    answers = _in_mid_answer(fleet, num_streams=6)
    started.kill(_DRAFTERS)
    found = [answer.result() for answer in answers]
    _wait_drafter(fleet, live=False)
    plain = fleet.ask(_SAID_TWICE, speculation={"mode": "on"})
    started.add("127.0.0.4", {"drafters": 1})
    _wait_drafter(fleet, live=True)
    drafted = fleet.ask(_SAID_TWICE, speculation={"mode": "on"})

    assert [answer.ids for answer in found] == [answer.ids for answer in undisturbed]
    assert (plain["paceline"]["route"], drafted["paceline"]["route"]) == ("plain", "speculative")
    assert plain["paceline"]["reason"]
    assert _contents(plain) == _contents(drafted)
    assert _peers(_replica(fleet, "Target")) == {"127.0.0.4"}


@pytest.mark.full
def test_targets_move_to_other_nodes_and_the_loss_of_one_costs_no_request(cluster):
    """A changed file moves them; when a target's machine is lost in mid-answer, answers go on with the same ids."""
    fleet, started = cluster
    undisturbed = [_answer(fleet, seed) for seed in range(6)]
    for address in ("127.0.0.5", "127.0.0.6"):
        started.add(address, {"engines": 1})
    target = {"replicas": 2, "resources": {"engines": 1}, "max_surge_percent": 100}
    fleet.deploy(_CONFIG | {"target": target, "drafters": {}}, within_s=400)
    moved = [len(_on_node(started, address, "Target")) for address in (_TARGETS, "127.0.0.5", "127.0.0.6")]

    answers = _in_mid_answer(fleet, num_streams=6)
    started.kill("127.0.0.6")
    found = [answer.result() for answer in answers]

    assert moved == [0, 1, 1]
    assert [answer.ids for answer in found] == [answer.ids for answer in undisturbed]
    assert sum(answer.summary.resumed_count for answer in found) > 0


def _on_node(started: Nodes, address: str, deployment: str) -> list[psutil.Process]:
    running = [process for process in started.processes(address) if is_alive(process)]
    return [process for process in running if f":{deployment}" in " ".join(process.cmdline())]


def _contents(answer: dict[str, Any]) -> list[str]:
    return [choice["message"]["content"] for choice in answer["choices"]]


def _num_accepted(fleet: Fleet) -> int:
    """Drafts kept in one answer that repeats itself; on a busy machine they may all be late."""
    summary = fleet.generate(speculation=generation_pb2.Speculation(mode="SPECULATION_MODE_ON")).summary
    assert summary is not None
    assert (summary.route, summary.drafter) == ("speculative", "ngram")
    return int(summary.accepted_prediction_token_count)


def _answer(fleet: Fleet, seed: int, **options: Any) -> Generated:
    sampling = common_pb2.SamplingParams(temperature=0.5, max_tokens=96, ignore_eos=True)
    return fleet.generate(_SAID_TWICE, sampling=sampling, seed=seed, **options)


def _in_mid_answer(fleet: Fleet, *, num_streams: int) -> list[Future[Generated]]:
    """Answers that have all begun and are far from done."""
    counts = [0] * num_streams

    def counter(stream: int):
        def on_message(count: int) -> None:
            counts[stream] = count + 1

        return on_message

    answers = [fleet.start(_answer, fleet, seed, on_message=counter(seed)) for seed in range(num_streams)]
    fleet.eventually(lambda: min(counts) >= 4, "every stream has begun", within_s=60)
    assert not any(answer.done() for answer in answers)
    return answers


def _wait_drafter(fleet: Fleet, *, live: bool) -> None:
    def as_wanted() -> bool:
        (model,) = httpx.get(f"{fleet.url}/v1/models", timeout=10).json()["data"]
        (group,) = model["paceline"]["drafter_groups"]
        return group["live"] is live

    fleet.eventually(as_wanted, f"drafter group live: {live}", within_s=120)


def _replica(fleet: Fleet, kind: str) -> psutil.Process:
    """The process of the one replica of the deployment whose name begins so, in any application."""
    title = re.compile(rf"ServeReplica:[\w-]+:{kind}")

    def found() -> list[psutil.Process]:
        running = [child for child in fleet.head.children(recursive=True) if is_alive(child)]
        return [child for child in running if title.search(" ".join(child.cmdline()))]

    # For moments a title is that of a call.
    (replica,) = fleet.eventually(found, f"a process of {kind}", within_s=60)
    return replica


def _own_servers(process: psutil.Process) -> set[str]:
    """Hosts that a replica's own server listens on; Ray's servers in the same process have other ports."""
    listening = [found.laddr for found in process.net_connections("tcp") if found.status == psutil.CONN_LISTEN]
    return {_host(address) for address in listening if address.port in _PEER_PORTS}


def _peers(process: psutil.Process) -> set[str]:
    """Hosts of the servers of other replicas that a replica is connected to."""
    established = [found for found in process.net_connections("tcp") if found.status == psutil.CONN_ESTABLISHED]
    return {_host(found.raddr) for found in established if found.raddr.port in _PEER_PORTS}


def _host(address: Any) -> str:
    return str(address.ip).removeprefix("::ffff:")


def _signal(processes: list[psutil.Process], number: signal.Signals) -> None:
    for process in processes:
        process.send_signal(number)
