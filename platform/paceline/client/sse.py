"""Reads server-sent events of the kind that chat APIs send: one JSON object per event, then ``[DONE]``."""

import json
from collections.abc import Iterable, Iterator
from typing import Any

from paceline.errors import AnswerFailedError

_DONE = "[DONE]"


def read_events(lines: Iterable[str]) -> Iterator[dict[str, Any]]:
    """The objects of a stream. Raises AnswerFailedError if it stops before ``[DONE]`` or has an error event."""
    for line in lines:
        name, _, value = line.partition(":")
        if name != "data":
            continue  # comments, event names and empty lines carry nothing here
        value = value.removeprefix(" ")
        if value == _DONE:
            return
        event = _load(value)
        if "error" in event:
            raise failure(event)
        yield event
    raise AnswerFailedError("stream_broken", "the stream stopped in the middle of the answer.")


def failure(body: dict[str, Any]) -> AnswerFailedError:
    """The error that a body in OpenAI's error shape describes."""
    error = body.get("error")
    if not isinstance(error, dict):
        return AnswerFailedError("unknown", "the server gave no reason.")
    return AnswerFailedError(str(error.get("code") or error.get("type")), str(error.get("message")))


def _load(value: str) -> dict[str, Any]:
    try:
        event = json.loads(value)
    except ValueError:
        event = None
    if not isinstance(event, dict):
        raise AnswerFailedError("bad_event", "the server sent something that is no chat stream.")
    return event
