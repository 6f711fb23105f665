import json

import httpx
import pytest

from paceline.client.conversation import ChatQuestion, Turn
from paceline.client.rest import RestClient, request_body
from paceline.errors import AnswerFailedError, ServiceUnreachableError

QUESTION = ChatQuestion((Turn("user", "hi"),))


def _client(handler):
    return RestClient("http://server/v1/", transport=httpx.MockTransport(handler))


def test_what_is_not_set_is_left_to_the_server():
    """No null and no default of the client's own travels."""
    assert request_body(QUESTION) == {
        "messages": [{"role": "user", "content": "hi"}],
        "speculation": {"mode": "auto"},
        "explain": False,
        "stream": True,
        "stream_options": {"include_usage": True},
    }


def test_a_draft_limit_travels_with_the_mode():
    """Both are fields of one object."""
    body = request_body(ChatQuestion(QUESTION.turns, speculation="on", drafter="ngram", max_draft_tokens=3))

    assert body["speculation"] == {"mode": "on", "drafter": "ngram", "max_draft_tokens": 3}


def test_the_url_may_end_in_v1():
    """Both spellings of the root lead to the same place."""
    seen = []

    def handler(request):
        seen.append(str(request.url))
        return httpx.Response(200, text="data: [DONE]\n\n")

    assert list(_client(handler).ask(QUESTION)) == []
    assert seen == ["http://server/v1/chat/completions"]


@pytest.mark.parametrize(
    ("response", "said"),
    [
        (httpx.Response(404, json={"error": {"code": "model_not_found", "message": "no such model"}}), "no such model"),
        (httpx.Response(502, text="<html>bad gateway</html>"), "502"),
        (httpx.Response(500, json=[1]), "500"),
    ],
)
def test_refusals_of_all_kinds_become_one_error(response, said):
    """Also what a proxy in front of the server says."""
    with pytest.raises(AnswerFailedError, match=said):
        list(_client(lambda _: response).ask(QUESTION))


@pytest.mark.parametrize(
    ("error", "raised"),
    [
        (httpx.ConnectError("refused"), ServiceUnreachableError),
        (httpx.ConnectTimeout("late"), ServiceUnreachableError),
        (httpx.ReadError("reset"), AnswerFailedError),
        (httpx.RemoteProtocolError("cut"), AnswerFailedError),
    ],
)
def test_transport_errors_are_told_apart(error, raised):
    """Nobody there is another sentence than a lost connection."""

    def handler(request):
        raise error

    with pytest.raises(raised):
        list(_client(handler).ask(QUESTION))


def test_another_kind_of_server_is_recognised():
    """A server that answers in OpenAI's shape without our facts is named as what it is."""
    chunk = {"choices": [], "usage": {"prompt_tokens": 1}, "model": "m"}
    body = f"data: {json.dumps(chunk)}\n\ndata: [DONE]\n\n"

    with pytest.raises(AnswerFailedError, match="not Paceline"):
        list(_client(lambda _: httpx.Response(200, text=body)).ask(QUESTION))


@pytest.mark.parametrize(
    ("url", "proxied"),
    [("http://127.0.0.1:8000", False), ("http://[::1]:8000/v1", False), ("http://gateway:8000", True)],
)
def test_a_web_proxy_does_not_stand_before_the_own_machine(monkeypatch, url, proxied):
    """HTTP_PROXY is obeyed for other machines only."""
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:9")
    monkeypatch.delenv("NO_PROXY", raising=False)
    monkeypatch.delenv("no_proxy", raising=False)
    client = RestClient(url)

    assert bool(client._http._mounts) is proxied
    client.close()
