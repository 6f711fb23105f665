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
from paceline.v1 import (
    common_pb2,
    drafter_pb2,
    drafter_pb2_grpc,
    generation_pb2,
    generation_pb2_grpc,
    replica_pb2,
    replica_pb2_grpc,
    target_pb2,
    target_pb2_grpc,
)
from paceline_serve.metric_values import metric_value
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
    with grpc.insecure_channel(platform.endpoint(deployment).address) as channel:
        calls = {
            GATEWAY: lambda: replica_pb2_grpc.ReplicaServiceStub(channel).Metrics(
                replica_pb2.MetricsRequest(), timeout=5
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
    addresses = [platform.endpoint(deployment).address for deployment in (TARGET, _NGRAM, GATEWAY)]

    assert [address.partition(":")[0] for address in addresses] == ["127.0.0.1"] * 3


def test_the_kill_switch_reaches_running_replicas(platform):
    """A changed tunable takes effect without any replica being replaced."""
    config = platform.local.config
    off = config.model_copy(update={"tunables": config.tunables.model_copy(update={"speculation_enabled": False})})
    pids = [platform.pid(name) for name in (GATEWAY, TARGET, _NGRAM)]
    try:
        platform.local.apply(off)
        platform.eventually(
            lambda: platform.chat("Hi", max_tokens=1)["paceline"]["reason"] == "the operator turned speculation off",
            "the kill switch",
            within_s=15,
        )
    finally:
        platform.local.apply(config)
    platform.eventually(lambda: platform.chat("Hi", max_tokens=2)["paceline"]["route"] == "speculative", "on again")

    assert [platform.pid(name) for name in (GATEWAY, TARGET, _NGRAM)] == pids


def _generate_ids(address: str, mode: int, on_message=lambda count: None) -> list[int]:
    """Token ids of a long answer over gRPC; ``on_message`` hears of each message."""
    request = generation_pb2.GenerateRequest(
        prompt="The alphabet again and again: a b c d e f g, a b c d e f g,",
        sampling=common_pb2.SamplingParams(temperature=0.0, max_tokens=64, ignore_eos=True),
        speculation=generation_pb2.Speculation(mode=mode),
    )
    ids = []
    with grpc.insecure_channel(address) as channel:
        stub = generation_pb2_grpc.GenerationServiceStub(channel)
        for count, message in enumerate(stub.Generate(request, timeout=120)):
            ids += [token_id for chunk in message.chunks for token_id in chunk.token_ids]
            on_message(count)
            assert not message.HasField("error"), message.error
    return ids


def test_an_answer_survives_its_drafters_death(platform):
    """kill -9 of the drafter in mid-answer: the answer ends with the undisturbed ids, and drafting resumes."""
    undisturbed = _generate_ids(platform.grpc_address, generation_pb2.SPECULATION_MODE_OFF)
    pid = platform.pid(_NGRAM)

    def kill_once(count):
        if count == 3:
            os.kill(pid, signal.SIGKILL)

    disturbed = _generate_ids(platform.grpc_address, generation_pb2.SPECULATION_MODE_ON, kill_once)

    assert disturbed == undisturbed
    assert len(disturbed) == 64
    platform.eventually(lambda: platform.pid(_NGRAM) != pid, "a new drafter", within_s=60)
    platform.wait_drafter(live=True)
    assert platform.chat("Copy: a b c a b c a b c a b c")["paceline"]["route"] == "speculative"


def test_a_killed_gateway_leaves_nothing_behind(platform):
    """kill -9 of a gateway that holds 3 streams: all is free within 5 s, and a new one starts."""
    pid = platform.pid(GATEWAY)
    speaking, endings = threading.Barrier(4), []

    def on_text(count):
        if count == 1:
            speaking.wait(timeout=30)

    def ask():
        try:
            endings.append(_stream(platform.url, on_text, max_tokens=1500, speculation={"mode": "on"}))
        except Exception as error:  # noqa: BLE001  # a thread's border; the test looks at what came
            endings.append(error)

    streams = [threading.Thread(target=ask) for _ in range(3)]
    for stream in streams:
        stream.start()
    speaking.wait(timeout=30)
    assert platform.target_report().load.running == platform.target_slots() == 3

    os.kill(pid, signal.SIGKILL)
    killed_at = time.monotonic()

    def is_free():
        report = platform.target_report()
        sessions = metric_value(platform.metrics(_NGRAM), catalogue.DRAFTER_SESSIONS)
        return report.load.running == 0 and report.num_held == 0 and platform.target_slots() == 0 and sessions == 0

    platform.eventually(is_free, "no place, no sequence, no session", within_s=5)
    assert time.monotonic() - killed_at < 5
    for stream in streams:
        stream.join(timeout=30)
    assert [type(ending) for ending in endings] == [httpx.RemoteProtocolError] * 3, endings
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
