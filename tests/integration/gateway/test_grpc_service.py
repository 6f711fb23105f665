"""The gRPC door's logic, without a server around it."""

import asyncio

import pytest

import stub_pool
import tiny_tokenizers
from paceline.core.priority import Priority
from paceline.errors import EngineFailedError, InvalidRequestError, OverloadedError, PacelineError, PayloadTooLargeError
from paceline.gateway.grpc_service import generate
from paceline.telemetry import catalogue
from paceline.telemetry.metrics import Metrics
from paceline.text.tokenizer import TextTokenizer
from paceline.v1 import generation_pb2


def _request(**fields):
    return generation_pb2.GenerateRequest(**{"prompt": "hi"} | fields)


async def _collect(pool, request):
    return [message async for message in generate(request, stub_pool.make_service(pool))]


async def test_an_answer_ends_with_its_summary():
    """Ids, text and finish in the chunks; one last message with the facts and nothing else."""
    pool = stub_pool.StubPool()
    messages = await _collect(pool, _request(seed=2**64 - 1, request_id="mine\n", choice_count=2))

    chunks = [chunk for message in messages for chunk in message.chunks]
    first = [chunk for chunk in chunks if chunk.choice == 0]
    assert "".join(chunk.text for chunk in first) == stub_pool.ANSWER
    assert [token_id for chunk in first for token_id in chunk.token_ids] == list(pool.script)
    assert [chunk.first_index for chunk in first] == list(range(0, len(pool.script), pool.block))
    assert [chunk.finish_reason for chunk in first if chunk.finish_reason] == ["stop"]
    assert [message.HasField("summary") for message in messages] == [False] * (len(messages) - 1) + [True]
    assert {message.request_id for message in messages} == {"mine"}
    summary = messages[-1].summary
    assert summary.seed == 2**64 - 1
    assert summary.completion_token_count == 2 * len(pool.script)
    assert summary.cached_prompt_token_count == 2
    assert (summary.route, summary.drafter, summary.verifier) == ("speculative", "ngram", "coupled")
    assert (summary.model, summary.system_fingerprint) == ("tiny", "fp-0123")
    assert summary.tau == pytest.approx(len(pool.script) / len(first))


async def test_a_plain_answer_has_no_alpha_it_does_not_know():
    """Speculation off: route plain, no drafter; the seed that was drawn is returned."""
    mode = generation_pb2.Speculation(mode=generation_pb2.SPECULATION_MODE_OFF)
    summary = (await _collect(stub_pool.StubPool(), _request(speculation=mode)))[-1].summary

    assert (summary.route, summary.drafter) == ("plain", "")
    assert summary.seed


async def test_a_seed_of_zero_is_a_seed():
    """Zero is not unset."""
    assert (await _collect(stub_pool.StubPool(), _request(seed=0)))[-1].summary.seed == 0


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"prompt": ""}, "prompt"),
        ({"prompt_tokens": {"token_ids": []}}, "prompt"),
        ({"prompt_tokens": {"token_ids": [-1]}}, "prompt"),
        ({"conversation": {}}, "conversation"),
        ({"conversation": {"messages": [{"role": "wizard", "content": "x"}]}}, "conversation.messages[0].role"),
        ({"sampling": {"temperature": 2.5}}, "temperature"),
        ({"sampling": {"top_p": 0}}, "top_p"),
        ({"sampling": {"max_tokens": -1}}, "max_tokens"),
        ({"sampling": {"stop": [""]}}, "stop"),
        ({"sampling": {"logprobs": 21}}, "logprobs"),
        ({"sampling": {"repetition_penalty": float("nan")}}, "repetition_penalty"),
        ({"choice_count": 17}, "n"),
        ({"speculation": {"mode": 9}}, "speculation.mode"),
        ({"speculation": {"max_draft_token_count": 65}}, "speculation.max_draft_tokens"),
        ({"deadline_s": -1}, "deadline_s"),
    ],
    ids=str,
)
async def test_bad_requests_raise_before_the_first_message(fields, param):
    """The same ranges as over REST; no target is bothered and the failure is counted under this door."""
    pool, metrics = stub_pool.StubPool(), Metrics(strict=True)
    service = stub_pool.make_service(pool, metrics=metrics)
    request = generation_pb2.GenerateRequest(**({"prompt": "hi"} if "prompt" not in "".join(fields) else {}) | fields)

    with pytest.raises(InvalidRequestError) as caught:
        await anext(generate(request, service))

    assert caught.value.param == param
    assert not pool.requests
    assert metrics.value(catalogue.FAILED_REQUESTS, door="grpc", reason="INVALID_REQUEST") == 1


async def test_a_request_without_input_is_refused():
    """None of the three inputs set."""
    with pytest.raises(InvalidRequestError, match="prompt"):
        await anext(generate(generation_pb2.GenerateRequest(), stub_pool.make_service(stub_pool.StubPool())))


async def test_a_priority_reaches_the_queue():
    """Not set means normal; a value of a later release is refused by name."""
    pool = stub_pool.StubPool()
    for value in (generation_pb2.PRIORITY_UNSPECIFIED, generation_pb2.PRIORITY_HIGH, generation_pb2.PRIORITY_LOW):
        await _collect(pool, _request(priority=value))

    assert [wish.priority for wish in pool.wishes] == [Priority.NORMAL, Priority.HIGH, Priority.LOW]
    with pytest.raises(InvalidRequestError, match="priority"):
        await _collect(pool, _request(priority=9))


async def test_overload_raises_before_the_first_message():
    """So that the call ends with a status."""
    with pytest.raises(OverloadedError):
        await _collect(stub_pool.StubPool(fail_with=stub_pool.overloaded()), _request())


async def test_a_break_in_mid_answer_is_a_last_message():
    """After the first tokens the error travels in the stream; there is no summary then."""
    pool = stub_pool.StubPool(fail_after=2, fail_with=EngineFailedError("boom"))
    messages = await _collect(pool, _request())

    assert messages[-1].error.reason == "REQUEST_ABANDONED"
    assert not messages[-1].error.retryable
    assert not any(message.HasField("summary") for message in messages)


async def test_closing_the_iterator_frees_the_target():
    """What a server does when the client cancels."""
    pool = stub_pool.StubPool(delay_s=0.001)
    messages = generate(_request(), stub_pool.make_service(pool))
    await anext(messages)

    await asyncio.wait_for(messages.aclose(), 1)

    assert (pool.running, len(pool.aborted)) == (0, 1)


async def test_both_doors_give_a_target_the_same_request():
    """One conversation over REST and gRPC: same prompt ids with one begin token, same parameters, same seed."""
    import httpx  # noqa: PLC0415  # only here

    pool = stub_pool.StubPool()
    words = [{"role": "system", "content": "be brief"}, {"role": "user", "content": "hi"}]
    body = {"messages": words, "temperature": 0.5, "max_tokens": 8, "seed": 7, "stop": ["x"], "top_k": 3}
    transport = httpx.ASGITransport(stub_pool.make_app(pool))
    async with httpx.AsyncClient(transport=transport, base_url="http://gateway") as client:
        assert (await client.post("/v1/chat/completions", json=body)).status_code == 200
    sampling = {"temperature": 0.5, "max_tokens": 8, "stop": ["x"], "top_k": 3}
    await _collect(pool, generation_pb2.GenerateRequest(conversation={"messages": words}, sampling=sampling, seed=7))

    rest, rpc = pool.requests
    assert rest.prompt_token_ids == rpc.prompt_token_ids
    assert rest.prompt_token_ids.count(dict(pool.tokenizer.vocabulary.special_ids)["bos"]) == 1
    assert (rest.sampling, rest.seed, rest.plan) == (rpc.sampling, rpc.seed, rpc.plan)


async def test_a_request_over_the_size_limit_is_refused_unread():
    """The limit on bodies holds at this door too, for prompts that are much to tokenise."""
    pool, metrics = stub_pool.StubPool(), Metrics(strict=True)
    service = stub_pool.make_service(pool, metrics=metrics, max_body_bytes=1024)

    with pytest.raises(PayloadTooLargeError, match="1024"):
        await anext(generate(_request(prompt="x" * 1024), service))

    assert not pool.requests
    assert metrics.value(catalogue.FAILED_REQUESTS, door="grpc", reason="PAYLOAD_TOO_LARGE") == 1
    assert (await anext(generate(_request(prompt="x" * 100), service))).chunks


async def test_what_nobody_planned_is_logged_and_said_without_details(caplog):
    """Before the first message an internal error; after it a last message; the trace goes to the log only."""
    with pytest.raises(PacelineError) as caught:
        await _collect(stub_pool.StubPool(fail_with=RuntimeError("secret")), _request())
    broken = await _collect(stub_pool.StubPool(fail_after=2, fail_with=RuntimeError("secret")), _request())

    assert (caught.value.reason, broken[-1].error.reason) == ("INTERNAL", "INTERNAL")
    assert len(broken) == 3
    assert "secret" not in str(caught.value) + broken[-1].error.message
    assert caplog.text.count("RuntimeError: secret") == 2


async def test_all_of_a_message_reaches_the_template():
    """Name and call id of a tool's message are rendered; developer reads as system, as over REST."""
    template = (
        "{{ bos_token }}{% for m in messages %}<{{ m.role }}{% if m.name is defined %} {{ m.name }}{% endif %}"
        "{% if m.tool_call_id is defined %} {{ m.tool_call_id }}{% endif %}>{{ m.content }}{% endfor %}"
    )
    pool = stub_pool.StubPool(tokenizer=TextTokenizer(tiny_tokenizers.byte_level(chat_template=template)))
    messages = [
        {"role": "developer", "content": "be brief"},
        {"role": "user", "content": "weather?", "name": "ann"},
        {"role": "tool", "content": "rain", "tool_call_id": "call-1"},
    ]
    await _collect(pool, generation_pb2.GenerateRequest(conversation={"messages": messages}))

    prompt = pool.tokenizer.decode(pool.requests[0].prompt_token_ids)
    assert prompt == "<system>be brief<user ann>weather?<tool call-1>rain"
