"""What clients of both doors see of an answer that moves from one target to another: nothing but a count."""

import json

import httpx
import pytest

import stub_pool
from paceline.core.plans import Plan, Route
from paceline.errors import EngineFailedError, StreamGapError, TargetLeavingError, TargetLostError
from paceline.gateway.grpc_service import generate
from paceline.v1 import common_pb2, generation_pb2

# After how many batches each attempt ends, in the middle of what is an event for the client.
MOVES = [(1, TargetLostError("it died")), (1, TargetLeavingError("drained")), (1, StreamGapError(1, 2))]
BODIES = {
    "/v1/chat/completions": {
        "messages": [{"role": "user", "content": "hi"}],
        "logprobs": True,
        "top_logprobs": 2,
        "seed": 3,
        "n": 2,
    },
    "/v1/completions": {"prompt": "hi", "max_tokens": 200, "logprobs": 2, "seed": 3, "n": 2, "stop": ["lazy"]},
}
FACTS_THAT_DIFFER = {"tau", "alpha", "resumed"}


async def _post(pool, path, **fields):
    transport = httpx.ASGITransport(stub_pool.make_app(pool))
    async with httpx.AsyncClient(transport=transport, base_url="http://gateway") as client:
        return await client.post(path, json=BODIES[path] | fields)


def _comparable(body):
    """A body without what differs between any two requests, or with what was counted in lost attempts."""
    facts = body.get("paceline")
    if facts is not None:
        body["paceline"] = {key: value for key, value in facts.items() if key not in FACTS_THAT_DIFFER}
    usage = body.get("usage")
    if usage is not None:
        del usage["completion_tokens_details"], usage["prompt_tokens_details"]
    return {key: value for key, value in body.items() if key not in ("id", "created")}


def _events(response):
    lines = response.text.removesuffix("\n\n").split("\n\n")
    assert lines[-1] == "data: [DONE]"
    return [json.loads(line.removeprefix("data: ")) for line in lines[:-1]]


@pytest.mark.parametrize("path", BODIES)
async def test_a_whole_answer_over_rest_is_the_undisturbed_one(path):
    """Text, logprobs, finish reasons and usage; the prompt counts once, and the facts count the moves."""
    undisturbed = (await _post(stub_pool.StubPool(uneven=True), path)).json()
    resumed = (await _post(stub_pool.StubPool(uneven=True, failures=MOVES), path)).json()

    assert (undisturbed["paceline"]["resumed"], resumed["paceline"]["resumed"]) == (0, 3)
    assert _comparable(resumed) == _comparable(undisturbed)


@pytest.mark.parametrize("path", BODIES)
async def test_a_stream_over_rest_has_the_undisturbed_events(path):
    """One event after the other, with one id: only the facts at the end tell."""
    fields = {"stream": True, "stream_options": {"include_usage": True}}
    undisturbed = _events(await _post(stub_pool.StubPool(), path, **fields))
    resumed = _events(await _post(stub_pool.StubPool(failures=MOVES), path, **fields))

    assert len({event["id"] for event in resumed}) == 1
    assert resumed[-1]["paceline"]["resumed"] == 3
    assert [_comparable(event) for event in resumed] == [_comparable(event) for event in undisturbed]


async def _collect(pool):
    sampling = common_pb2.SamplingParams(max_tokens=200, logprobs=2)
    request = generation_pb2.GenerateRequest(prompt="hi", sampling=sampling, seed=3, choice_count=2, request_id="mine")
    return [message async for message in generate(request, stub_pool.make_service(pool))]


async def test_a_stream_over_grpc_has_the_undisturbed_messages():
    """Indices go on without a gap, and the summary counts the prompt once."""
    undisturbed = await _collect(stub_pool.StubPool())
    resumed = await _collect(stub_pool.StubPool(failures=MOVES))

    assert resumed[:-1] == undisturbed[:-1]
    summaries = [messages[-1].summary for messages in (undisturbed, resumed)]
    assert [summary.resumed_count for summary in summaries] == [0, 3]
    for name in ("prompt_token_count", "completion_token_count", "seed", "route", "reason", "drafter"):
        assert len({getattr(summary, name) for summary in summaries}) == 1, name


async def test_an_attempt_has_the_plan_of_its_time():
    """The drafter group that is live by then; the facts name the first plan, which is what the request was given."""
    pool = stub_pool.StubPool(failures=MOVES[:1])
    messages = generate(generation_pb2.GenerateRequest(prompt="hi"), stub_pool.make_service(pool))
    await anext(messages)
    pool.groups = (stub_pool.DEAD_DRAFT,)
    summary = [message async for message in messages][-1].summary

    first, second = (request.plan for request in pool.requests)
    assert (first.route, first.drafter) == (Route.SPECULATIVE, "ngram")
    assert (second.route, second.drafter) == (Route.PLAIN, None)
    assert (summary.route, summary.reason) == ("speculative", first.reason)


async def test_a_group_that_is_gone_does_not_end_an_answer_that_asked_for_it():
    """It goes on plain; a fleet that has not reported yet changes nothing."""
    wish = generation_pb2.Speculation(mode=generation_pb2.SPECULATION_MODE_ON, drafter="ngram")
    for ready, expected in ((True, Plan(Route.PLAIN, "its drafter group is not deployed any more")), (False, None)):
        pool = stub_pool.StubPool(failures=MOVES[:1])
        request = generation_pb2.GenerateRequest(prompt="hi", speculation=wish)
        messages = generate(request, stub_pool.make_service(pool))
        await anext(messages)
        pool.groups, pool.ready = (), ready
        assert [message async for message in messages][-1].HasField("summary")
        assert pool.requests[1].plan == (expected or pool.requests[0].plan)


async def test_the_facts_name_what_the_answer_came_from():
    """The fingerprint of the replica that brought the first token, which may be newer than the gateway's own view."""
    pool = stub_pool.StubPool(fingerprints={"new": "fp-new"}, failures=[(1, EngineFailedError("x"))])
    assert (await _collect(pool))[-1].summary.system_fingerprint == "fp-new"
