"""The official client reads what the REST door sends."""

import openai
import pytest

import stub_pool
from paceline.errors import EngineFailedError

# The client's own HTTP library, whichever release of it is installed.
http = openai._base_client.httpx2 if hasattr(openai._base_client, "httpx2") else openai._base_client.httpx
MESSAGES = [{"role": "user", "content": "hi"}]


def _client(pool):
    transport = http.ASGITransport(stub_pool.make_app(pool))
    return openai.AsyncOpenAI(
        api_key="none",
        base_url="http://gateway/v1",
        http_client=http.AsyncClient(transport=transport, base_url="http://gateway"),
        max_retries=0,
    )


async def test_the_official_client_chats():
    """A whole answer and a streamed one have the same text; usage and our facts are readable."""
    async with _client(stub_pool.StubPool()) as client:
        whole = await client.chat.completions.create(model="tiny", messages=MESSAGES, seed=3)
        stream = await client.chat.completions.create(
            model="tiny", messages=MESSAGES, stream=True, stream_options={"include_usage": True}
        )
        chunks = [chunk async for chunk in stream]

    streamed = "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices)
    assert whole.choices[0].message.content == streamed == stub_pool.ANSWER
    assert whole.usage.completion_tokens_details.accepted_prediction_tokens > 0
    assert whole.usage.prompt_tokens_details.cached_tokens == 2
    assert chunks[-1].usage.total_tokens == whole.usage.total_tokens
    assert whole.model_extra["paceline"]["seed"] == 3
    assert chunks[-1].model_extra["paceline"]["route"] == "speculative"


@pytest.mark.parametrize("options", [{}, {"stream_options": {}}, {"stream_options": {"include_usage": False}}])
async def test_the_official_client_reads_streams_without_usage(options):
    """Every chunk has a choice, as clients that index choices[0] expect."""
    async with _client(stub_pool.StubPool()) as client:
        stream = await client.chat.completions.create(model="tiny", messages=MESSAGES, stream=True, **options)
        assert "".join([chunk.choices[0].delta.content or "" async for chunk in stream]) == stub_pool.ANSWER


async def test_the_official_client_reads_logprobs_and_completions():
    """Both shapes of logprobs parse."""
    async with _client(stub_pool.StubPool()) as client:
        chat = await client.chat.completions.create(model="tiny", messages=MESSAGES, logprobs=True, top_logprobs=2)
        text = await client.completions.create(model="tiny", prompt="hi", logprobs=2, max_tokens=4)

    assert bytes(b for t in chat.choices[0].logprobs.content[:-1] for b in t.bytes).decode() == stub_pool.ANSWER
    assert len(text.choices[0].logprobs.tokens) == 4


async def test_the_official_client_sees_a_broken_stream():
    """A failure in mid-answer raises in the client instead of ending the loop."""
    pool = stub_pool.StubPool(fail_after=2, fail_with=EngineFailedError("boom"))
    async with _client(pool) as client:
        stream = await client.chat.completions.create(model="tiny", messages=MESSAGES, stream=True)
        with pytest.raises(openai.APIError, match="failed 3 times"):
            [chunk async for chunk in stream]


async def test_the_official_client_maps_errors():
    """Statuses become the client's own classes, with param and code."""
    async with _client(stub_pool.StubPool()) as client:
        with pytest.raises(openai.BadRequestError) as bad:
            await client.chat.completions.create(model="tiny", messages=MESSAGES, temperature=9)
        with pytest.raises(openai.NotFoundError):
            await client.chat.completions.create(model="other", messages=MESSAGES)
        models = await client.models.list()

    assert (bad.value.param, bad.value.code) == ("temperature", "invalid_request")
    assert [model.id for model in models.data] == ["tiny"]
