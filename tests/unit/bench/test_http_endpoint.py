"""Servers that are not Paceline, scripted."""

import json

import httpx
import pytest

from paceline.bench.endpoint import Api
from paceline.bench.http_endpoint import HttpEndpoint
from paceline.bench.records import BenchQuestion
from paceline.bench.variants import Variant
from paceline.errors import AnswerFailedError, ConfigError, ServiceUnreachableError

QUESTION = BenchQuestion("chat", "hi", 16, 4, Variant("a", temperature=0.5))
USAGE = {"prompt_tokens": 7, "completion_tokens": 6, "prompt_tokens_details": {"cached_tokens": 4}}


class _Server:
    """Lists ``models`` and answers with ``events``."""

    def __init__(self, events, *, models=("m",), status=200):
        self.events, self.models, self.status = events, models, status
        self.bodies = []

    def __call__(self, request):
        if request.url.path == "/v1/models":
            return httpx.Response(200, json={"data": [{"id": name} for name in self.models]})
        self.bodies.append((request.url.path, json.loads(request.content), request.headers.get("authorization")))
        text = "".join(f"data: {json.dumps(event)}\n\n" for event in self.events)
        return httpx.Response(self.status, text=text + "data: [DONE]\n\n")


async def _ask(server, **options):
    endpoint = await HttpEndpoint.connect("http://server", transport=httpx.MockTransport(server), **options)
    try:
        return await endpoint.ask(QUESTION)
    finally:
        await endpoint.close()


def _chat(text):
    return {"choices": [{"delta": {"content": text}}]}


async def test_tokens_are_shared_out_where_the_server_gives_only_a_total():
    """By the characters of each piece, and marked as an estimate; empty pieces are no arrivals."""
    answer = await _ask(_Server([_chat(""), _chat("ab"), _chat("cdefgh"), {"choices": [], "usage": USAGE}]))

    assert [arrival.num_tokens for arrival in answer.arrivals] == [2, 4]
    assert (answer.text, answer.prompt_tokens, answer.completion_tokens) == ("abcdefgh", 7, 6)
    assert answer.cached_tokens == 4
    assert not answer.exact_counts
    assert answer.drafting is None


async def test_only_openai_fields_are_sent_to_others():
    """No explain, no speculation; the key travels as a bearer token."""
    server = _Server([_chat("x"), {"choices": [], "usage": USAGE}])
    await _ask(server, api_key="k")
    ((path, body, key),) = server.bodies

    assert path == "/v1/chat/completions"
    assert body == {
        "messages": [{"role": "user", "content": "hi"}],
        "model": "m",
        "max_tokens": 16,
        "temperature": 0.5,
        "seed": 4,
        "stream": True,
        "stream_options": {"include_usage": True},
    }
    assert key == "Bearer k"


async def test_text_completions_are_read_too():
    """Their text stands elsewhere."""
    server = _Server([{"choices": [{"text": "ab"}]}, {"choices": [{"text": ""}], "usage": USAGE}])
    answer = await _ask(server, api=Api.COMPLETIONS)

    assert (answer.text, server.bodies[0][0], server.bodies[0][1]["prompt"]) == ("ab", "/v1/completions", "hi")


@pytest.mark.parametrize(
    ("server", "reason"),
    [
        (_Server([_chat("x")]), "no_usage"),
        (_Server([{"error": {"code": "engine_failed", "message": "m"}}]), "engine_failed"),
        (_Server([], status=503), "503"),
    ],
)
async def test_what_goes_wrong_is_named(server, reason):
    """An answer whose tokens cannot be counted is no answer."""
    with pytest.raises(AnswerFailedError) as caught:
        await _ask(server)
    assert caught.value.args[0] == reason


async def test_a_server_with_several_models_needs_a_name():
    """It is not guessed."""
    events = [_chat("x"), {"choices": [], "usage": USAGE}]
    with pytest.raises(ConfigError, match="one, two"):
        await _ask(_Server(events, models=("one", "two")))
    server = _Server(events, models=("one", "two"))
    await _ask(server, model="two")
    assert server.bodies[0][1]["model"] == "two"


async def test_nobody_there_is_one_sentence():
    """Before anything is measured."""

    def refuse(request):
        raise httpx.ConnectError("refused")

    with pytest.raises(ServiceUnreachableError, match="refused"):
        await _ask(refuse)
