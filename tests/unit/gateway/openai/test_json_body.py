import pytest

from paceline.errors import InvalidRequestError
from paceline.gateway.openai.chat_request import ChatCompletionRequest
from paceline.gateway.openai.fields import CHAT_FIELDS
from paceline.gateway.openai.json_body import parse_body


def _with(field: str) -> bytes:
    return b'{"messages":[{"role":"user","content":"hi"}],' + field.encode() + b"}"


def _parse(body: bytes):
    return parse_body(body, ChatCompletionRequest, CHAT_FIELDS)


@pytest.mark.parametrize(
    ("body", "said"),
    [
        (b"", "not valid JSON"),
        (b"{", "not valid JSON"),
        (b"[]", "JSON object"),
        (b'"text"', "JSON object"),
        (b'{"a":"\xff"}', "not valid UTF-8"),
        (b"[" * 100_000, "nested too deeply"),
        (_with('"temperature":NaN'), "cannot be read"),
        (_with('"temperature":1e999'), "finite"),
        (_with('"max_tokens":' + "9" * 5000), "cannot be read"),
        (b'{"messages":[{"role":"user","content":"\\ud800"}]}', "surrogate"),
        (b'{"messages":[{"role":"user","content":"x","extra":1}]}', "messages[0].extra"),
        (b'{"messages":[{"role":"wizard","content":"x"}]}', "messages[0].role"),
    ],
    ids=lambda value: str(value)[:30],
)
def test_bad_bodies_are_refused_in_words(body, said):
    """Whatever is sent as a body, the answer is one sentence about it."""
    with pytest.raises(InvalidRequestError) as caught:
        _parse(body)
    assert said in str(caught.value)


def test_errors_do_not_repeat_what_was_sent():
    """A prompt never shows up in an error message, and so in no log of one."""
    with pytest.raises(InvalidRequestError) as caught:
        _parse(b'{"messages":[{"role":"user","content":{"secret":"MARKER"}}]}')
    assert "MARKER" not in str(caught.value)
    assert caught.value.__cause__ is None


def test_a_surrogate_pair_is_text():
    """Escaped emoji are fine; only half a pair is not."""
    parsed = _parse(b'{"messages":[{"role":"user","content":"\\ud83d\\ude00"}]}')
    assert parsed.messages[0].content == "\U0001f600"


def test_nulls_inside_objects_equal_absence():
    """Messages of an earlier answer come back with null fields, also ones that nobody knows here."""
    parsed = _parse(b'{"messages":[{"role":"user","content":"hi","tool_calls":null,"reasoning":null}]}')
    assert parsed.messages[0].role == "user"
