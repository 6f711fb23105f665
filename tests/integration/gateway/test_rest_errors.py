"""Bad input: a 4xx in OpenAI's shape, decided before the first byte, streamed or not."""

import json

import httpx
import pytest

import stub_pool
from paceline.errors import EngineFailedError, TargetUnavailableError

CHAT = {"messages": [{"role": "user", "content": "hi"}]}
HUGE = int("9" * 400)
LONG = {"messages": [{"role": "user", "content": "word " * 2000}]}
GRID = [
    ({"temperature": -1}, 400, "temperature", "invalid_request"),
    ({"temperature": 2.1}, 400, "temperature", "invalid_request"),
    ({"top_p": 0}, 400, "top_p", "invalid_request"),
    ({"top_p": 1.01}, 400, "top_p", "invalid_request"),
    ({"stop": ["a"] * 5}, 400, "stop", "invalid_request"),
    ({"stop": ""}, 400, "stop", "invalid_request"),
    ({"logprobs": True, "top_logprobs": 21}, 400, "top_logprobs", "invalid_request"),
    ({"top_logprobs": 2}, 400, "top_logprobs", "invalid_request"),
    ({"n": 0}, 400, "n", "invalid_request"),
    ({"n": 10**6}, 400, "n", "invalid_request"),
    ({"logit_bias": {"99999": 1}}, 400, "logit_bias", "invalid_request"),
    ({"logit_bias": {"1": 101}}, 400, "logit_bias", "invalid_request"),
    ({"messages": []}, 400, "messages", "invalid_request"),
    ({"messages": [{"role": "assistant", "content": "x"}]}, 400, "messages", "invalid_request"),
    (LONG, 400, "messages", "context_length_exceeded"),
    ({"max_tokens": 600}, 400, "messages", "context_length_exceeded"),
    ({"model": "other"}, 404, "model", "model_not_found"),
    ({"speculation": {"drafter": "other"}}, 404, "speculation.drafter", "drafter_group_not_found"),
    ({"speculation": {"mode": "maybe"}}, 400, "speculation.mode", "invalid_request"),
    ({"speculation": {"speed": 3}}, 400, "speculation.speed", "invalid_request"),
    ({"tools": [{"type": "function"}]}, 400, "tools", "unsupported_feature"),
    ({"response_format": {"type": "json_schema", "json_schema": {"schema": 5}}}, 400, "response_format",
     "unsupported_feature"),
    ({"chat_template": "{{ 1 }}"}, 400, "chat_template", "invalid_request"),
    *(
        ({field: sign * HUGE}, 400, field, "invalid_request")
        for field in ("n", "max_tokens", "top_k", "min_tokens", "seed")
        for sign in (1, -1)
    ),
    *(
        ({field: HUGE}, 400, field, "invalid_request")
        for field in ("temperature", "top_p", "min_p", "repetition_penalty", "presence_penalty", "frequency_penalty")
    ),
    ({"logprobs": True, "top_logprobs": HUGE}, 400, "top_logprobs", "invalid_request"),
    ({"speculation": {"max_draft_tokens": HUGE}}, 400, "speculation.max_draft_tokens", "invalid_request"),
    ({"logit_bias": {"1": HUGE}}, 400, "logit_bias", "invalid_request"),
    ({"logit_bias": {"9" * 400: 1}}, 400, "logit_bias", "invalid_request"),
    ({"stop_token_ids": [HUGE]}, 400, "stop_token_ids", "invalid_request"),
]  # fmt: skip


def _client(pool, **gateway):
    transport = httpx.ASGITransport(stub_pool.make_app(pool, **gateway))
    return httpx.AsyncClient(transport=transport, base_url="http://gateway")


def _error(response):
    assert response.headers["content-type"] == "application/json"
    error = response.json()["error"]
    assert set(error) == {"message", "type", "param", "code"}
    assert error["message"]
    return error


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(("fields", "status", "param", "code"), GRID, ids=lambda value: str(value)[:40])
async def test_bad_requests_are_4xx_before_the_first_byte(fields, status, param, code, stream):
    """Status, field and code are the same with and without a stream, and no target is bothered."""
    pool = stub_pool.StubPool()
    async with _client(pool) as client:
        response = await client.post("/v1/chat/completions", json=CHAT | {"stream": stream} | fields)

    error = _error(response)
    assert (response.status_code, error["param"], error["code"]) == (status, param, code)
    assert error["type"] == "invalid_request_error"
    assert not pool.requests


@pytest.mark.parametrize("echo", [False, True])
@pytest.mark.parametrize("logprobs", [None, 0, 1, 5])
@pytest.mark.parametrize("max_tokens", [0, 1, 8])
@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("mode", ["on", "off"])
async def test_every_combination_of_echo_and_logprobs_is_answered(echo, logprobs, max_tokens, stream, mode):
    """Each cell is a 400 that names the field, or lists of one length."""
    body = {
        "prompt": "hi", "echo": echo, "logprobs": logprobs, "max_tokens": max_tokens, "stream": stream,
        "speculation": {"mode": mode},
    }  # fmt: skip
    async with _client(stub_pool.StubPool()) as client:
        response = await client.post("/v1/completions", json=body)

    if echo or max_tokens == 0:
        assert response.status_code == 400
        assert _error(response)["param"] == ("echo" if echo else "max_tokens")
    elif not stream:
        found = response.json()["choices"][0]["logprobs"]
        if logprobs is None:
            assert found is None
        else:
            assert {len(values) for values in found.values()} == {max_tokens}
    else:
        assert response.status_code == 200
        assert response.text.endswith("data: [DONE]\n\n")


@pytest.mark.parametrize("stream", [False, True])
async def test_overload_says_when_to_come_back(stream):
    """A full queue is a 503 with Retry-After in whole seconds, and no event stream."""
    pool = stub_pool.StubPool(fail_with=stub_pool.overloaded())
    async with _client(pool) as client:
        response = await client.post("/v1/chat/completions", json=CHAT | {"stream": stream})

    assert response.status_code == 503
    assert response.headers["retry-after"] == "3"
    assert _error(response)["code"] == "overloaded"


@pytest.mark.parametrize(
    ("error", "status"),
    [(TargetUnavailableError("none"), 503), (EngineFailedError("x"), 500), (RuntimeError("s"), 500)],
)
async def test_failures_before_the_first_token_have_their_status(error, status):
    """A stream that never started is a plain error; what nobody planned says nothing about the inside."""
    pool = stub_pool.StubPool(fail_with=error)
    async with _client(pool) as client:
        response = await client.post("/v1/chat/completions", json=CHAT | {"stream": True})

    assert response.status_code == status
    assert _error(response)["type"] == "server_error"
    assert isinstance(error, RuntimeError) == (_error(response)["code"] == "internal")
    assert pool.running == 0


@pytest.mark.parametrize(
    ("body", "said"), [(b"{", "JSON"), (b'{"a":"\xff\xfe"}', "UTF-8"), (b"[1]", "object"), (b"", "JSON")]
)
async def test_bodies_that_are_no_json_are_400(body, said):
    """Broken JSON and other encodings are the client's mistake."""
    async with _client(stub_pool.StubPool()) as client:
        response = await client.post("/v1/chat/completions", content=body)

    assert response.status_code == 400
    assert said in _error(response)["message"]


async def test_a_big_body_is_refused_before_it_is_read():
    """With a declared length nothing is read; chunked, reading stops at the limit."""
    sent = 0

    async def endless():
        nonlocal sent
        for _ in range(1000):
            sent += 1024
            yield b"x" * 1024

    async with _client(stub_pool.StubPool(), max_body_bytes=4096) as client:
        declared = await client.post("/v1/chat/completions", content=b"x" * 5000)
        chunked = await client.post("/v1/chat/completions", content=endless())

    for response in (declared, chunked):
        assert response.status_code == 413
        assert _error(response)["code"] == "payload_too_large"
    assert sent <= 2 * 4096


async def test_a_body_at_the_limit_is_read():
    """The limit itself is allowed."""
    body = json.dumps(CHAT).encode()
    async with _client(stub_pool.StubPool(), max_body_bytes=1024) as client:
        padded = body + b" " * (1024 - len(body))
        assert (await client.post("/v1/chat/completions", content=padded)).status_code == 200
        assert (await client.post("/v1/chat/completions", content=padded + b" ")).status_code == 413


@pytest.mark.parametrize(
    ("method", "path", "status", "code"),
    [
        ("GET", "/v1/chat/completions", 405, "method_not_allowed"),
        ("POST", "/v1/models", 405, "method_not_allowed"),
        ("GET", "/v1/nothing", 404, "not_found"),
        ("GET", "/docs", 404, "not_found"),
        ("GET", "/openapi.json", 404, "not_found"),
    ],
)
async def test_unknown_paths_and_methods_have_the_same_shape(method, path, status, code):
    """A client reads one shape of error, whatever went wrong; nothing is served that is not documented."""
    async with _client(stub_pool.StubPool()) as client:
        response = await client.request(method, path)

    assert response.status_code == status
    assert _error(response)["code"] == code
    assert response.headers["x-request-id"]


async def test_before_the_first_target_requests_get_503():
    """A gateway that is up before its targets asks clients to come back."""
    async with _client(stub_pool.StubPool(started=False)) as client:
        answers = [await client.post("/v1/chat/completions", json=CHAT), await client.get("/v1/models")]

    for response in answers:
        assert response.status_code == 503
        assert _error(response)["code"] == "target_unavailable"
        assert response.headers["retry-after"] == "1"


async def test_huge_numbers_in_a_text_completion_are_400():
    """Token ids and logprobs of the other endpoint, and numbers that no reader of JSON takes."""
    async with _client(stub_pool.StubPool()) as client:
        ids = await client.post("/v1/completions", json={"prompt": [HUGE]})
        logprobs = await client.post("/v1/completions", json={"prompt": "x", "logprobs": HUGE})
        digits = b'{"prompt": "x", "n": ' + b"9" * 5000 + b"}"
        unreadable = await client.post("/v1/completions", content=digits)

    assert [response.status_code for response in (ids, logprobs, unreadable)] == [400] * 3
    assert [_error(response)["param"] for response in (ids, logprobs, unreadable)] == ["prompt", "logprobs", None]
