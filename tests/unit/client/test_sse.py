import asyncio

import pytest

from paceline.client.sse import failure, read_events, read_events_async
from paceline.errors import AnswerFailedError


def _read_awaited(lines):
    async def awaited():
        for line in lines:
            yield line

    async def collect():
        return [event async for event in read_events_async(awaited())]

    return asyncio.run(collect())


READERS = pytest.mark.parametrize("read", [lambda lines: list(read_events(lines)), _read_awaited], ids=["", "async"])


@READERS
def test_events_are_read_until_done(read):
    """Comments, other fields and empty lines are skipped; nothing after [DONE] is read."""
    lines = [": ping", "event: x", 'data: {"a": 1}', "", 'data:{"a": 2}', "data: [DONE]", "data: nonsense"]

    assert read(lines) == [{"a": 1}, {"a": 2}]


@READERS
@pytest.mark.parametrize(
    ("lines", "code"),
    [
        ([], "stream_broken"),
        (['data: {"a": 1}'], "stream_broken"),
        (["data: <html>"], "bad_event"),
        (["data: [1]"], "bad_event"),
        (['data: {"error": {"code": "engine_failed", "message": "boom"}}', "data: [DONE]"], "engine_failed"),
        (['data: {"error": "boom"}'], "unknown"),
    ],
)
def test_streams_that_go_wrong_raise(read, lines, code):
    """A stream without its end, with an error or with nonsense never looks like a whole answer."""
    with pytest.raises(AnswerFailedError) as caught:
        read(lines)
    assert caught.value.args[0] == code


def test_an_error_that_is_null_is_none():
    """Some servers send the field with every event."""
    assert list(read_events(['data: {"a": 1, "error": null}', "data: [DONE]"])) == [{"a": 1, "error": None}]


def test_an_error_without_a_code_has_its_type():
    """Other servers may leave the code out."""
    assert failure({"error": {"type": "server_error", "message": "m", "code": None}}).args == ("server_error", "m")
