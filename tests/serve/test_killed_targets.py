"""kill -9 of targets in the middle of answers: clients get the undisturbed answer, or an error that looks like one."""

import json
import os
import signal
import threading
from dataclasses import dataclass
from pathlib import Path

import grpc
import httpx
import pytest

import fleet as fleets
from paceline.v1 import common_pb2, generation_pb2
from paceline_serve.names import TARGET

pytestmark = [pytest.mark.serve, pytest.mark.model, pytest.mark.timeout(900)]

_TOKENS = 72
_FAULTS = Path(fleets.__file__).parent / "faults"
_POISON = "drink this poison"
_RECOVERED_S = 480


def _config(replicas: int, dtype: str = "float32") -> dict:
    return {
        "model": {"source": "smollm2-135m", "dtype": dtype},
        "engine": {"kv_cache_tokens": 4096, "threads": 1},
        "target": {"replicas": replicas},
        "drafters": {"ngram": {"method": "ngram", "place": "remote", "threads": 1}},
        "gateway": {"replicas": 2},
    }


@pytest.fixture(scope="module")
def fleet(tmp_path_factory):
    """A Ray whose targets die of a certain prompt; tests deploy what they need."""
    switches = tmp_path_factory.mktemp("switches")
    environment = {
        "PYTHONPATH": os.pathsep.join(filter(None, [str(_FAULTS), os.environ.get("PYTHONPATH", "")])),
        "PACELINE_TEST_FAULTS": "poison",
        "PACELINE_TEST_POISON": _POISON,
        "PACELINE_TEST_SWITCHES": str(switches),
    }
    with fleets.running(tmp_path_factory.mktemp("fleet"), **environment) as running:
        yield running


@dataclass
class _Streamed:
    """What a client of the REST stream has been sent."""

    text: str = ""
    finish: str = ""
    done: bool = False
    usage: dict | None = None
    facts: dict | None = None


def _stream(fleet, prompt, on_message):
    """One greedy answer over REST, streamed."""
    body = {
        "prompt": prompt, "temperature": 0, "max_tokens": _TOKENS, "ignore_eos": True, "stream": True,
        "stream_options": {"include_usage": True},
    }  # fmt: skip
    answer, count = _Streamed(), 0
    with httpx.stream("POST", f"{fleet.url}/v1/completions", json=body, timeout=240) as response:
        response.raise_for_status()
        for line in response.iter_lines():
            answer.done = line == "data: [DONE]" or answer.done
            if not line.startswith("data: {"):
                continue
            event = json.loads(line.removeprefix("data: "))
            assert "error" not in event, event
            for choice in event["choices"]:
                answer.text += choice["text"]
                answer.finish = choice["finish_reason"] or answer.finish
                on_message(count)
                count += 1
            answer.usage = event.get("usage") or answer.usage
            answer.facts = event.get("paceline") or answer.facts
    return answer


def _sampling(**fields):
    return common_pb2.SamplingParams(**{"temperature": 0.0, "max_tokens": _TOKENS, "ignore_eos": True} | fields)


_PROMPTS = ("Once upon a time", "The capital of France", "To make bread you need", "a b c d e f g, a b c d e f g,")
_PLAIN = generation_pb2.Speculation(mode=generation_pb2.SPECULATION_MODE_OFF)


def _eight(fleet):
    """Clients by name; each takes a callback that hears of every message."""

    def over_grpc(prompt, **fields):
        return lambda on_message: fleet.generate(prompt, on_message, **fields)

    return {
        "greedy": over_grpc(_PROMPTS[0], sampling=_sampling()),
        "greedy, plain": over_grpc(_PROMPTS[1], sampling=_sampling(), speculation=_PLAIN),
        "a loop": over_grpc(_PROMPTS[3], sampling=_sampling()),
        "two choices": over_grpc(_PROMPTS[2], sampling=_sampling(temperature=0.8), seed=5, choice_count=2),
        "sampled": over_grpc(_PROMPTS[0], sampling=_sampling(temperature=1.0, top_p=0.9), seed=11),
        "penalties": over_grpc(_PROMPTS[1], sampling=_sampling(temperature=0.7, frequency_penalty=0.5), seed=3),
        "logprobs": over_grpc(_PROMPTS[2], sampling=_sampling(temperature=1.0, logprobs=2), seed=7),
        "REST": lambda on_message: _stream(fleet, _PROMPTS[2], on_message),
    }


def _run(fleet, clients, *, when_all_speak=lambda: None, messages=3):
    """Answers of clients that ask at the same time, by name; the callback runs once each has had some messages."""
    speaking = threading.Barrier(len(clients) + 1)

    def on_message(count):
        if count == messages:
            speaking.wait(timeout=240)

    running = {name: fleet.start(client, on_message) for name, client in clients.items()}
    speaking.wait(timeout=240)
    when_all_speak()
    return {name: answer.result(timeout=300) for name, answer in running.items()}


def _kill(pid):
    os.kill(pid, signal.SIGKILL)


def _wait_whole(fleet, replicas):
    fleet.eventually(lambda: len(fleet.pids(TARGET)) == replicas, f"{replicas} targets", within_s=_RECOVERED_S)
    fleet.deploy(_config(replicas), within_s=_RECOVERED_S)  # returns when all replicas run


def _core(answer):
    """What must not differ."""
    if isinstance(answer, _Streamed):
        tokens = [answer.usage[f"{part}_tokens"] for part in ("prompt", "completion", "total")]
        return answer.text, answer.finish, answer.done, tokens
    logprobs = {choice: [str(entry) for entry in entries] for choice, entries in answer.logprobs.items()}
    return answer.ids, answer.texts, answer.finishes, logprobs


def _resumes(answer):
    return answer.facts["resumed"] if isinstance(answer, _Streamed) else answer.summary.resumed_count


@pytest.mark.parametrize("dtype", ["float32", pytest.param("bfloat16", marks=pytest.mark.full)])
def test_answers_go_on_when_one_of_two_targets_is_killed(fleet, dtype):
    """8 streams: ids, text, logprobs, ends and usage are the undisturbed ones; those that moved say so."""
    fleet.deploy(_config(2, dtype), within_s=_RECOVERED_S)
    clients = _eight(fleet)
    undisturbed = _run(fleet, clients)
    victim = fleet.pids(TARGET)[0]
    disturbed = _run(fleet, clients, when_all_speak=lambda: _kill(victim))

    assert {name: _core(answer) for name, answer in disturbed.items()} == {
        name: _core(answer) for name, answer in undisturbed.items()
    }
    assert {name: _resumes(answer) for name, answer in undisturbed.items()} == dict.fromkeys(clients, 0)
    moved = {name: _resumes(answer) for name, answer in disturbed.items()}
    assert set(moved.values()) == {0, 1}, moved
    for name, answer in disturbed.items():
        if name != "REST":
            before = undisturbed[name].summary
            assert answer.summary.prompt_token_count == before.prompt_token_count, name
            assert answer.summary.completion_token_count == before.completion_token_count, name
            assert answer.summary.system_fingerprint == before.system_fingerprint, name
            if moved[name]:
                assert not answer.summary.HasField("tau") or 1 <= answer.summary.tau <= 6, name


def test_a_request_that_kills_its_targets_is_refused(fleet):
    """After two deaths; whatever else ran on those targets goes on, and the fleet answers afterwards."""
    _wait_whole(fleet, 2)
    clients = {name: client for name, client in _eight(fleet).items() if name in ("greedy", "sampled", "two choices")}
    undisturbed = _run(fleet, clients)
    refused = []

    def drink():
        with pytest.raises(grpc.RpcError) as caught:
            fleet.generate(f"Now {_POISON}, please.")
        refused.append(caught.value)

    others = _run(fleet, clients, when_all_speak=drink)

    deaths = Path(fleet.environment["PACELINE_TEST_SWITCHES"], "deaths").read_text().splitlines()
    assert "REQUEST_ABANDONED" in refused[0].details()
    assert len(deaths) == 2, deaths
    assert {name: _core(answer) for name, answer in others.items()} == {
        name: _core(answer) for name, answer in undisturbed.items()
    }
    _wait_whole(fleet, 2)
    assert fleet.generate(_PROMPTS[0], sampling=_sampling()).ids == undisturbed["greedy"].ids


@pytest.mark.full  # test_fleet_faults has a short form
def test_the_only_target_is_killed(fleet):
    """An answer goes on on the restarted replica; one whose deadline is before that ends with an error."""
    fleet.deploy(_config(1), within_s=_RECOVERED_S)
    fleet.eventually(lambda: len(fleet.pids(TARGET)) == 1, "a single target", within_s=_RECOVERED_S)
    clients = {name: client for name, client in _eight(fleet).items() if name in ("greedy", "two choices", "REST")}
    undisturbed = _run(fleet, clients)
    (pid,) = fleet.pids(TARGET)
    clients["in a hurry"] = lambda on_message: fleet.generate(
        _PROMPTS[0], on_message, may_break=True, deadline_s=10.0, sampling=_sampling(max_tokens=2000)
    )
    disturbed = _run(fleet, clients, when_all_speak=lambda: _kill(pid))

    hurried = disturbed.pop("in a hurry")
    assert {name: _core(answer) for name, answer in disturbed.items()} == {
        name: _core(answer) for name, answer in undisturbed.items()
    }
    assert {name: _resumes(answer) for name, answer in disturbed.items()} == dict.fromkeys(undisturbed, 1)
    assert hurried.error.reason == "DEADLINE_EXCEEDED"
    assert (hurried.finishes, hurried.summary) == ({}, None)
    assert fleet.pids(TARGET) != [pid]
