"""What a running platform makes of killed processes, strangers and new settings."""

import json
import logging
import os
import signal
import threading
import time
from concurrent.futures import ThreadPoolExecutor

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

logger = logging.getLogger(__name__)

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


def _zero_at(count) -> float:
    """When a count is first seen at 0."""
    give_up_at = time.monotonic() + 30
    while count():
        assert time.monotonic() < give_up_at, "something is held for good"
        time.sleep(0.02)
    return time.monotonic()


def test_a_killed_gateway_leaves_nothing_behind(platform):
    """kill -9 of a gateway with 3 streams: places, sequences and sessions are 0 within 2 s, and a new one starts."""
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

    taken = {
        "sequences": lambda: platform.target_report().load.running,
        "holds": lambda: platform.target_report().num_held,
        "slots": platform.target_slots,
        "sessions": lambda: metric_value(platform.metrics(_NGRAM), catalogue.DRAFTER_SESSIONS),
    }
    with ThreadPoolExecutor(len(taken)) as watching:
        free_at = dict(zip(taken, watching.map(_zero_at, taken.values()), strict=True))
    free_after_s = {what: at - killed_at for what, at in free_at.items()}
    logger.info("free after %s", free_after_s)
    assert max(free_after_s.values()) < 2, free_after_s
    for stream in streams:
        stream.join(timeout=30)
    assert [type(ending) for ending in endings] == [httpx.RemoteProtocolError] * 3, endings
    platform.eventually(lambda: platform.pid(GATEWAY) != pid, "a new gateway", within_s=60)
    platform.wait_ready()
    assert platform.chat("Hi", max_tokens=2)["usage"]["completion_tokens"] == 2


def test_an_answer_outlives_its_only_target(platform):
    """kill -9 in mid-answer: it goes on on the replica that comes next; one that cannot wait is told that it failed."""
    undisturbed = _generate_ids(platform.grpc_address, generation_pb2.SPECULATION_MODE_ON)
    pid, hurried = platform.pid(TARGET), []

    def be_in_a_hurry():
        sampling = common_pb2.SamplingParams(temperature=0.0, max_tokens=2000, ignore_eos=True)
        request = generation_pb2.GenerateRequest(prompt="Count: one, two,", sampling=sampling, deadline_s=8.0)
        with grpc.insecure_channel(platform.grpc_address) as channel:
            hurried.extend(generation_pb2_grpc.GenerationServiceStub(channel).Generate(request, timeout=120))

    other = threading.Thread(target=be_in_a_hurry)
    other.start()
    platform.eventually(lambda: platform.target_report().load.running == 1, "a first answer")

    def kill_once(count):
        if count == 3:
            os.kill(pid, signal.SIGKILL)

    disturbed = _generate_ids(platform.grpc_address, generation_pb2.SPECULATION_MODE_ON, kill_once)
    other.join(timeout=60)

    assert disturbed == undisturbed
    assert platform.pid(TARGET) != pid
    assert hurried[-1].error.reason == "DEADLINE_EXCEEDED"
    assert not any(chunk.finish_reason for message in hurried for chunk in message.chunks)
    platform.wait_ready()
    assert platform.chat("Hi", max_tokens=2)["usage"]["completion_tokens"] == 2
