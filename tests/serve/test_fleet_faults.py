"""What a running platform makes of killed processes, strangers and new settings."""

import json
import os
import signal
import threading
import time

import grpc
import httpx
import pytest

from paceline.telemetry import catalogue
from paceline.v1 import common_pb2, common_pb2_grpc, drafter_pb2, drafter_pb2_grpc, target_pb2, target_pb2_grpc
from paceline_serve.names import GATEWAY, TARGET, drafter_deployment

pytestmark = [pytest.mark.serve, pytest.mark.model, pytest.mark.timeout(400)]

_NGRAM = drafter_deployment("ngram")
_LONG = {
    "messages": [{"role": "user", "content": "Write the alphabet again and again: a b c d e f g, a b c d e f g,"}],
    "temperature": 0,
    "max_tokens": 120,
    "ignore_eos": True,
}


def _stream(url: str, on_text=lambda count: None, **fields) -> str:
    """Text of a streamed answer; ``on_text`` hears of each piece."""
    text, count = [], 0
    body = _LONG | {"stream": True} | fields
    with httpx.stream("POST", f"{url}/v1/chat/completions", json=body, timeout=120) as response:
        for line in response.iter_lines():
            if not line.startswith("data: {"):
                continue
            event = json.loads(line.removeprefix("data: "))
            assert "error" not in event, event
            for choice in event["choices"]:
                if choice["delta"].get("content"):
                    text.append(choice["delta"]["content"])
                    count += 1
                    on_text(count)
    return "".join(text)


@pytest.mark.parametrize("deployment", [TARGET, _NGRAM, GATEWAY])
def test_a_peer_call_without_the_token_is_unauthenticated(platform, deployment):
    """Whoever does not know a replica's token gets nothing from its port, not even a health check."""
    from paceline_serve.fleet import endpoints

    with grpc.insecure_channel(endpoints(deployment)[0].address) as channel:
        calls = {
            GATEWAY: lambda: common_pb2_grpc.ReplicaServiceStub(channel).Metrics(
                common_pb2.MetricsRequest(), timeout=5
            ),
            TARGET: lambda: next(
                target_pb2_grpc.TargetServiceStub(channel).WatchLoad(target_pb2.WatchLoadRequest(), timeout=5)
            ),
            _NGRAM: lambda: next(
                drafter_pb2_grpc.DrafterServiceStub(channel).Link(iter([drafter_pb2.LinkRequest()]), timeout=5)
            ),
        }
        with pytest.raises(grpc.RpcError) as refused:
            calls[deployment]()

    assert refused.value.code() is grpc.StatusCode.UNAUTHENTICATED


def test_peer_ports_are_bound_to_the_loopback_address(platform):
    """On one machine nothing between the replicas can be reached from another."""
    from paceline_serve.fleet import endpoints

    addresses = [endpoints(deployment)[0].address for deployment in (TARGET, _NGRAM, GATEWAY)]

    assert [address.partition(":")[0] for address in addresses] == ["127.0.0.1"] * 3


def test_the_kill_switch_reaches_running_replicas(platform):
    """A changed tunable takes effect without any replica being replaced."""
    from paceline_serve.deploy import apply_local
    from paceline_serve.deploy_schema import render

    config = platform.local.config
    off = config.model_copy(update={"tunables": config.tunables.model_copy(update={"speculation_enabled": False})})
    pids = [platform.pid(name) for name in (GATEWAY, TARGET, _NGRAM)]
    try:
        apply_local(render(off))
        platform.eventually(
            lambda: platform.chat("Hi", max_tokens=1)["paceline"]["reason"] == "the operator turned speculation off",
            "the kill switch",
            within_s=15,
        )
    finally:
        apply_local(render(config))
    platform.eventually(lambda: platform.chat("Hi", max_tokens=2)["paceline"]["route"] == "speculative", "on again")

    assert [platform.pid(name) for name in (GATEWAY, TARGET, _NGRAM)] == pids


def test_an_answer_survives_its_drafters_death(platform):
    """kill -9 of the drafter in mid-answer: the answer ends normally with the undisturbed text, and drafting resumes."""
    undisturbed = _stream(platform.url, speculation={"mode": "off"})
    pid = platform.pid(_NGRAM)

    def kill_once(count):
        if count == 3:
            os.kill(pid, signal.SIGKILL)

    disturbed = _stream(platform.url, kill_once, speculation={"mode": "on"})

    assert disturbed == undisturbed
    platform.eventually(lambda: platform.pid(_NGRAM) != pid, "a new drafter", within_s=60)
    platform.wait_drafter(live=True)
    assert platform.chat("Copy: a b c a b c a b c a b c")["paceline"]["route"] == "speculative"


def test_a_killed_gateway_leaves_nothing_behind(platform):
    """kill -9 of a gateway that holds 3 streams: the target's places and sequences and the drafter's sessions are 0
    within 5 s, and a new gateway takes over.
    """
    pid = platform.pid(GATEWAY)
    endings = []

    def ask():
        try:
            _stream(platform.url, max_tokens=1500, speculation={"mode": "on"})
        except httpx.HTTPError as error:
            endings.append(error)

    streams = [threading.Thread(target=ask) for _ in range(3)]
    for stream in streams:
        stream.start()
    platform.eventually(lambda: platform.target_report().load.running == 3, "three sequences", within_s=30)
    assert platform.target_report().num_held == 3

    os.kill(pid, signal.SIGKILL)
    killed_at = time.monotonic()

    def is_free():
        report = platform.target_report()
        sessions = _value(platform.metrics(_NGRAM), catalogue.DRAFTER_SESSIONS)
        return report.load.running == 0 and report.num_held == 0 and sessions == 0

    platform.eventually(is_free, "no place, no sequence, no session", within_s=5)
    assert time.monotonic() - killed_at < 5
    for stream in streams:
        stream.join(timeout=30)
    assert len(endings) == 3
    platform.eventually(lambda: platform.pid(GATEWAY) != pid, "a new gateway", within_s=60)
    platform.wait_ready()
    assert platform.chat("Hi", max_tokens=2)["usage"]["completion_tokens"] == 2


def test_a_killed_target_ends_its_streams_with_an_error(platform):
    """kill -9 of the only target: the client is told, and a new replica answers the next question."""
    pid = platform.pid(TARGET)
    events = []
    body = _LONG | {"stream": True, "max_tokens": 1500}
    with httpx.stream("POST", f"{platform.url}/v1/chat/completions", json=body, timeout=60) as response:
        for line in response.iter_lines():
            events.append(line)
            if len(events) == 8:
                os.kill(pid, signal.SIGKILL)
    told = [line for line in events if '"error"' in line]

    assert len(told) == 1
    assert "target_unavailable" in told[0].lower()
    platform.eventually(lambda: platform.pid(TARGET) != pid, "a new target", within_s=90)
    platform.wait_ready()
    assert platform.chat("Hi", max_tokens=2)["usage"]["completion_tokens"] == 2


def _value(text: str, instrument) -> float:
    from paceline_serve.fleet import metric

    return metric(text, instrument.prometheus_name)
