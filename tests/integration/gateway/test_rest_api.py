"""The REST door end to end over ASGI, with a scripted target."""

import asyncio
import json

import httpx
import pytest

import stub_pool
import tiny_tokenizers
from paceline.core.generation import FinishReason, GenerationChunk
from paceline.errors import EngineFailedError
from paceline.text.tokenizer import TextTokenizer

CHAT = {"messages": [{"role": "user", "content": "hi"}]}
PATHS = {"/v1/chat/completions": CHAT, "/v1/completions": {"prompt": "hi", "max_tokens": 200}}


def _client(pool, **gateway):
    transport = httpx.ASGITransport(stub_pool.make_app(pool, **gateway))
    return httpx.AsyncClient(transport=transport, base_url="http://gateway")


async def _post(pool, path, body, **headers):
    async with _client(pool) as client:
        return await client.post(path, json=PATHS[path] | body, headers=headers)


def _events(response):
    assert response.headers["content-type"].startswith("text/event-stream")
    lines = [line for line in response.text.split("\n\n") if line]
    assert all(line.startswith("data: ") for line in lines)
    assert lines[-1] == "data: [DONE]"
    return [json.loads(line.removeprefix("data: ")) for line in lines[:-1]]


def _text(choice):
    return choice["message"]["content"] if "message" in choice else choice["text"]


def _streamed_text(events, index=0):
    choices = [choice for event in events for choice in event.get("choices", ()) if choice["index"] == index]
    return "".join(choice["delta"].get("content", "") if "delta" in choice else choice["text"] for choice in choices)


@pytest.mark.parametrize("path", PATHS)
async def test_a_whole_answer(path):
    """Text, usage, the facts and our own id, in OpenAI's shape."""
    pool = stub_pool.StubPool()
    body = (await _post(pool, path, {"seed": -2, "n": 2})).json()

    assert [_text(choice) for choice in body["choices"]] == [stub_pool.ANSWER] * 2
    assert [choice["finish_reason"] for choice in body["choices"]] == ["stop"] * 2
    assert body["usage"]["prompt_tokens"] == len(pool.requests[0].prompt_token_ids)
    assert body["usage"]["completion_tokens"] == 2 * len(pool.script)
    assert body["usage"]["total_tokens"] == body["usage"]["prompt_tokens"] + body["usage"]["completion_tokens"]
    details = body["usage"]["completion_tokens_details"]
    rounds = -(-len(pool.script) // pool.block)
    assert details["accepted_prediction_tokens"] == 2 * (len(pool.script) - rounds)
    assert details["rejected_prediction_tokens"] == 2 * rounds
    assert body["system_fingerprint"] == "fp-0123"
    assert body["id"].endswith(pool.requests[0].key.removesuffix("/1"))
    assert body["paceline"] == {
        "route": "speculative",
        "reason": "drafter group 'ngram' is live",
        "drafter": "ngram",
        "switches": 0,
        "tau": len(pool.script) / rounds,
        "alpha": (len(pool.script) - rounds) / len(pool.script),
        "seed": -2,
        "resumed": 0,
        "verifier": "coupled",
    }


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("block", [1, 3, 100])
async def test_a_stream_has_the_text_of_the_whole(path, block):
    """However the tokens were grouped: same text, one finish per choice, facts in the last chunk only."""
    events = _events(await _post(stub_pool.StubPool(block=block), path, {"stream": True, "n": 2}))

    assert [_streamed_text(events, index) for index in (0, 1)] == [stub_pool.ANSWER] * 2
    finishes = [(c["index"], c["finish_reason"]) for event in events for c in event["choices"] if c["finish_reason"]]
    assert sorted(finishes) == [(0, "stop"), (1, "stop")]
    assert [("paceline" in event) for event in events] == [False] * (len(events) - 1) + [True]
    assert events[-1]["paceline"]["route"] == "speculative"
    assert len({event["id"] for event in events}) == 1
    assert all(event["system_fingerprint"] == "fp-0123" for event in events)
    if path.endswith("chat/completions"):
        roles = [event["choices"][0]["delta"].get("role") for event in events[:3]]
        assert roles == ["assistant", "assistant", None]


async def test_tokens_that_are_ready_together_share_a_chunk():
    """A block of four tokens is one chunk, not four."""
    pool = stub_pool.StubPool(block=4)
    events = _events(await _post(pool, "/v1/completions", {"stream": True, "max_tokens": 8}))

    assert len(events) == 2 + 1  # two blocks, one finish


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize(
    ("options", "asked"),
    [(None, False), ({}, False), ({"include_usage": False}, False), ({"include_usage": True}, True)],
)
async def test_usage_is_streamed_only_when_asked_for(path, options, asked):
    """Asked: one last chunk without choices, all others null. Not asked: no trace of it."""
    events = _events(await _post(stub_pool.StubPool(), path, {"stream": True, "stream_options": options}))

    if not asked:
        assert all("usage" not in event and event["choices"] for event in events)
        return
    assert [event["usage"] for event in events[:-1]] == [None] * (len(events) - 1)
    assert events[-1]["choices"] == []
    assert events[-1]["usage"]["completion_tokens"] > 0
    assert "paceline" in events[-1]


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("block", [1, 4])
@pytest.mark.parametrize("stop", [None, "lazy"])
async def test_streamed_logprobs_equal_the_whole(path, block, stop):
    """Every token has its own entry and alternatives, also where no text came with it; pieces join to the whole."""
    ask = {"logprobs": True, "top_logprobs": 3} if path.endswith("chat/completions") else {"logprobs": 3}
    ask |= {"stop": stop}
    pool = stub_pool.StubPool(block=block, answer="abc 안녕하세요 👨‍👩‍👧 lazy")
    response = (await _post(pool, path, ask)).json()
    whole = response["choices"][0]["logprobs"]
    events = _events(await _post(pool, path, ask | {"stream": True}))
    pieces = [event["choices"][0]["logprobs"] for event in events if event["choices"][0]["logprobs"]]

    lists = ["content"] if "content" in whole else ["tokens", "token_logprobs", "top_logprobs", "text_offset"]
    for name in lists:
        assert [entry for piece in pieces for entry in piece[name]] == whole[name]
        assert len(whole[name]) == response["usage"]["completion_tokens"]
    if "content" in whole:
        tops = [tuple(top["logprob"] for top in entry["top_logprobs"]) for entry in whole["content"]]
        assert all(len(top) == 3 for top in tops)
        assert len(set(tops)) == len(tops)


async def test_offsets_point_into_the_text():
    """A token's offset is where its text starts, whatever the bytes of a character are split into."""
    pool = stub_pool.StubPool(answer="The 안녕하세요 fox")
    choice = (await _post(pool, "/v1/completions", {"logprobs": 0})).json()["choices"][0]

    logprobs = choice["logprobs"]
    assert logprobs["top_logprobs"] == [None] * len(logprobs["tokens"])
    for token, offset in zip(logprobs["tokens"][:-1], logprobs["text_offset"], strict=False):
        if "\ufffd" not in token:
            assert choice["text"][offset : offset + len(token)] == token


@pytest.mark.parametrize("path", PATHS)
async def test_no_logprobs_unless_asked_for(path):
    """The field is null, streamed and whole."""
    assert (await _post(stub_pool.StubPool(), path, {})).json()["choices"][0]["logprobs"] is None
    events = _events(await _post(stub_pool.StubPool(), path, {"stream": True}))
    assert all(choice["logprobs"] is None for event in events for choice in event["choices"])


@pytest.mark.parametrize("path", PATHS)
async def test_rounds_are_reported_when_asked_for(path):
    """The rounds of all chunks are those of the whole, and each adds up."""
    whole = (await _post(stub_pool.StubPool(), path, {"explain": True})).json()
    events = _events(await _post(stub_pool.StubPool(), path, {"explain": True, "stream": True}))

    streamed = [entry for event in events for entry in event.get("paceline", {}).get("rounds", ())]
    assert streamed == whole["paceline"]["rounds"][0]
    assert streamed[0]["accepted"] + streamed[0]["rejected"] == len(streamed[0]["drafted"])
    assert sum(entry["accepted"] + 1 for entry in streamed) == whole["usage"]["completion_tokens"]
    assert "rounds" not in (await _post(stub_pool.StubPool(), path, {})).json()["paceline"]


async def test_limits_and_stops_reach_the_target():
    """max_tokens=8 gives 8 tokens and says so; a stop string is not part of the text."""
    limited = (await _post(stub_pool.StubPool(), "/v1/chat/completions", {"max_tokens": 8})).json()
    assert limited["usage"]["completion_tokens"] == 8
    assert limited["choices"][0]["finish_reason"] == "length"

    stopped = (await _post(stub_pool.StubPool(), "/v1/chat/completions", {"stop": " jumps"})).json()
    assert _text(stopped["choices"][0]) == "The quick brown fox"
    assert stopped["choices"][0]["finish_reason"] == "stop"


async def test_the_clients_id_comes_back_cleaned():
    """A label is echoed on good and bad answers, without what could break headers or logs; none gets one of ours."""
    good = await _post(stub_pool.StubPool(), "/v1/completions", {}, **{"x-request-id": "trace 1\t<x>" + "y" * 200})
    bad = await _post(stub_pool.StubPool(), "/v1/completions", {"n": 99}, **{"x-request-id": "bad-1"})
    none = await _post(stub_pool.StubPool(), "/v1/completions", {})

    assert good.headers["x-request-id"] == ("trace1x" + "y" * 200)[:128]
    assert bad.headers["x-request-id"] == "bad-1"
    assert none.headers["x-request-id"]


async def test_equal_client_ids_do_not_mix():
    """Two live requests with the same id get their own answers under their own ids."""
    pool = stub_pool.StubPool(delay_s=0.005)
    async with _client(pool) as client:
        bodies = [PATHS["/v1/completions"] | {"max_tokens": limit} for limit in (4, 9)]
        answers = await asyncio.gather(
            *(client.post("/v1/completions", json=body, headers={"x-request-id": "same"}) for body in bodies)
        )

    assert [answer.json()["usage"]["completion_tokens"] for answer in answers] == [4, 9]
    assert len({answer.json()["id"] for answer in answers}) == 2
    assert {answer.headers["x-request-id"] for answer in answers} == {"same"}


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("kind", ["error", "early end", "bug"])
async def test_a_stream_that_breaks_never_looks_whole(path, kind):
    """After the first tokens an error is an event with a code; no finish reason, no facts, then [DONE]."""
    pool = stub_pool.StubPool(fail_after=2)
    pool.end_early = kind == "early end"
    pool.fail_with = {"error": EngineFailedError("boom"), "bug": RuntimeError("secret")}.get(kind)
    response = await _post(pool, path, {"stream": True})

    assert response.status_code == 200
    events = _events(response)
    code = "internal" if kind == "bug" else "request_abandoned"
    assert events[-1]["error"]["code"] == code
    assert "secret" not in response.text
    assert all(choice["finish_reason"] is None for event in events[:-1] for choice in event["choices"])
    assert not any("paceline" in event for event in events)


@pytest.mark.parametrize("path", PATHS)
async def test_a_whole_answer_that_breaks_is_an_error(path):
    """Without a stream the client gets the error's own status and no half answer."""
    pool = stub_pool.StubPool(fail_after=2, fail_with=EngineFailedError("boom"))
    response = await _post(pool, path, {})

    assert response.status_code == 500
    assert response.json()["error"]["code"] == "request_abandoned"


async def test_models_show_the_deployment():
    """Groups with why they are not live, the verifier and the context length; one model by its name."""
    async with _client(stub_pool.StubPool()) as client:
        listed = (await client.get("/v1/models")).json()
        single = (await client.get("/v1/models/tiny")).json()
        missing = await client.get("/v1/models/org/other")

    assert listed["object"] == "list"
    assert listed["data"] == [single]
    assert single["id"] == "tiny"
    assert single["paceline"]["context_length"] == 512
    assert single["paceline"]["drafter_groups"] == [
        {"name": "ngram", "method": "ngram", "live": True, "detail": ""},
        {"name": "small", "method": "draft_model", "live": False, "detail": "vocabulary: fingerprints differ"},
    ]
    assert missing.status_code == 404
    assert missing.json()["error"]["code"] == "model_not_found"


async def test_health_means_a_real_token():
    """503 with the reason until a token was generated; /livez is 200 all along."""
    async with _client(stub_pool.StubPool()) as client:
        before = await client.get("/health")
        alive = await client.get("/livez")
        await client.post("/v1/completions", json={"prompt": "a", "max_tokens": 1})
        after = await client.get("/health")

    assert before.status_code == 503
    assert "no token" in before.json()["error"]["message"]
    assert alive.status_code == 200
    assert after.status_code == 200


class _HalfPool(stub_pool.StubPool):
    """Its first choice finishes; then the second one breaks, whatever is tried."""

    async def stream(self, request):
        if not request.resumed:
            whole = GenerationChunk(request.key, 0, 0, (5,), "a", 0, finish=FinishReason.STOP)
            yield [GenerationChunk(request.key, 1, 0, (5,), "a", 0), whole]
        raise EngineFailedError("boom")


@pytest.mark.parametrize("path", PATHS)
async def test_a_choice_that_finished_says_so_when_another_breaks(path):
    """Its finish reason is sent before the error, and only its own."""
    events = _events(await _post(_HalfPool(), path, {"stream": True, "n": 2}))

    finishes = [(c["index"], c["finish_reason"]) for e in events[:-1] for c in e["choices"] if c["finish_reason"]]
    assert finishes == [(0, "stop")]
    assert events[-1]["error"]["code"] == "request_abandoned"


TOOL_TEMPLATE = (
    "{{ bos_token }}{% for m in messages %}<{{ m.role }}{% if m.name %} {{ m.name }}{% endif %}"
    "{% if m.tool_call_id %} {{ m.tool_call_id }}{% endif %}>{{ m.content }}{% endfor %}"
)


async def test_tool_messages_are_rendered():
    """Name and call id of a tool's message reach the model through its template; developer reads as system."""
    pool = stub_pool.StubPool(tokenizer=TextTokenizer(tiny_tokenizers.byte_level(chat_template=TOOL_TEMPLATE)))
    messages = [
        {"role": "developer", "content": "be brief"},
        {"role": "user", "content": "weather?", "name": "ann"},
        {"role": "tool", "content": "rain", "tool_call_id": "call-1"},
    ]
    await _post(pool, "/v1/chat/completions", {"messages": messages})

    prompt = pool.tokenizer.decode(pool.requests[0].prompt_token_ids)
    assert prompt == "<system>be brief<user ann>weather?<tool call-1>rain"
