"""Reads server-sent events of the kind that chat APIs send: one JSON object per event, then ``[DONE]``."""

import json
from collections.abc import AsyncIterable, AsyncIterator, Iterable, Iterator
from typing import Any

from paceline.errors import AnswerFailedError

_DONE = "[DONE]"


def read_events(lines: Iterable[str]) -> Iterator[dict[str, Any]]:
    """The objects of a stream. Raises AnswerFailedError if it stops before ``[DONE]`` or has an error event."""
    for line in lines:
        value = _value(line)
        if value == _DONE:
            return
        if value is not None:
            yield _event(value)
    raise _broken()


async def read_events_async(lines: AsyncIterable[str]) -> AsyncIterator[dict[str, Any]]:
    """The same for lines that are awaited."""
    async for line in lines:
        value = _value(line)
        if value == _DONE:
            return
        if value is not None:
            yield _event(value)
    raise _broken()


def failure(body: dict[str, Any]) -> AnswerFailedError:
    """The error that a body in OpenAI's error shape describes."""
    error = body.get("error")
    if not isinstance(error, dict):
        return AnswerFailedError("unknown", "the server gave no reason.")
    return AnswerFailedError(str(error.get("code") or error.get("type")), str(error.get("message")))


def _value(line: str) -> str | None:
    """What a data line carries; comments, event names and empty lines carry nothing here."""
    name, _, value = line.partition(":")
    return value.removeprefix(" ") if name == "data" else None


def _broken() -> AnswerFailedError:
    return AnswerFailedError("stream_broken", "the stream stopped in the middle of the answer.")


def _event(value: str) -> dict[str, Any]:
    event = _load(value)
    if event.get("error"):
        raise failure(event)
    return event


def _load(value: str) -> dict[str, Any]:
    try:
        event = json.loads(value)
    except ValueError:
        event = None
    if not isinstance(event, dict):
        raise AnswerFailedError("bad_event", "the server sent something that is no chat stream.")
    return event
