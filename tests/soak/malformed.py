"""Requests that must be refused, and how."""

import json
from collections.abc import Callable
from typing import Any, NamedTuple

from paceline.v1 import generation_pb2

GenerateRequest = generation_pb2.GenerateRequest


class RestCase(NamedTuple):
    """A spoiled REST body: ``spoil`` makes the bytes from a good body."""

    name: str
    spoil: Callable[[dict[str, Any]], bytes]
    status: int
    code: str


class GrpcCase(NamedTuple):
    """A spoiled message: ``spoil`` changes a good one."""

    name: str
    spoil: Callable[[GenerateRequest], None]
    status: str
    code: str


def _with(**fields: Any) -> Callable[[dict[str, Any]], bytes]:
    return lambda body: json.dumps(body | fields).encode()


def _without_prompt(body: dict[str, Any]) -> bytes:
    return json.dumps({key: value for key, value in body.items() if key not in {"prompt", "messages"}}).encode()


def _too_long(body: dict[str, Any]) -> bytes:
    text = "word " * 20_000
    field = {"messages": [{"role": "user", "content": text}]} if "messages" in body else {"prompt": text}
    return json.dumps(body | field).encode()


REST_CASES = (
    RestCase("no JSON", lambda body: json.dumps(body).encode()[:-9], 400, "invalid_request"),
    RestCase("no UTF-8", lambda _: b'{"prompt": "\xff\xfe"}', 400, "invalid_request"),
    RestCase("empty body", lambda _: b"", 400, "invalid_request"),
    RestCase("a list", lambda _: b"[1, 2]", 400, "invalid_request"),
    RestCase("wrong type", _with(max_tokens="many"), 400, "invalid_request"),
    RestCase("unknown field", _with(temprature=1.0), 400, "invalid_request"),
    RestCase("temperature out of range", _with(temperature=9.0), 400, "invalid_request"),
    RestCase("no choices", _with(n=0), 400, "invalid_request"),
    RestCase("stop too long", _with(stop=["x" * 2000]), 400, "invalid_request"),
    RestCase("no number", _with(top_p=float("nan")), 400, "invalid_request"),
    RestCase("unknown model", _with(model="no-such-model"), 404, "model_not_found"),
    RestCase("unknown group", _with(speculation={"drafter": "nobody"}), 404, "drafter_group_not_found"),
    RestCase("too much output", _with(max_tokens=10**6), 400, "context_length_exceeded"),
    RestCase("prompt too long", _too_long, 400, "context_length_exceeded"),
    RestCase("no prompt", _without_prompt, 400, "invalid_request"),
    RestCase("not supported", _with(tools=[{"type": "function"}], echo=True), 400, ""),
    RestCase("body too large", _with(user="x" * (3 * 2**20)), 413, "payload_too_large"),
)


def _set(path: str, value: Any) -> Callable[[GenerateRequest], None]:
    def spoil(message: GenerateRequest) -> None:
        *parents, name = path.split(".")
        part: Any = message
        for parent in parents:
            part = getattr(part, parent)
        setattr(part, name, value)

    return spoil


def _stranger(message: GenerateRequest) -> None:
    del message.conversation.messages[:]
    message.conversation.messages.add(role="nobody", content="Hello")


def _foreign_ids(message: GenerateRequest) -> None:
    message.prompt_tokens.CopyFrom(generation_pb2.GenerateRequest().prompt_tokens)
    message.prompt_tokens.token_ids.extend([5, 10**8])


GRPC_CASES = (
    GrpcCase("temperature out of range", _set("sampling.temperature", 9.0), "INVALID_ARGUMENT", "INVALID_REQUEST"),
    GrpcCase("no number", _set("sampling.top_p", float("nan")), "INVALID_ARGUMENT", "INVALID_REQUEST"),
    GrpcCase("unknown model", _set("model", "no-such-model"), "NOT_FOUND", "MODEL_NOT_FOUND"),
    GrpcCase("unknown group", _set("speculation.drafter", "nobody"), "NOT_FOUND", "DRAFTER_GROUP_NOT_FOUND"),
    GrpcCase("unknown mode", _set("speculation.mode", 77), "INVALID_ARGUMENT", "INVALID_REQUEST"),
    GrpcCase("too much output", _set("sampling.max_tokens", 10**6), "INVALID_ARGUMENT", "CONTEXT_LENGTH_EXCEEDED"),
    GrpcCase("prompt too long", _set("prompt", "word " * 20_000), "INVALID_ARGUMENT", "CONTEXT_LENGTH_EXCEEDED"),
    GrpcCase("negative choices", _set("choice_count", -1), "INVALID_ARGUMENT", "INVALID_REQUEST"),
    GrpcCase("negative deadline", _set("deadline_s", -1.0), "INVALID_ARGUMENT", "INVALID_REQUEST"),
    GrpcCase("a stranger speaks", _stranger, "INVALID_ARGUMENT", "INVALID_REQUEST"),
    GrpcCase("ids of another vocabulary", _foreign_ids, "INVALID_ARGUMENT", "INVALID_REQUEST"),
    GrpcCase("no prompt", lambda message: message.ClearField(message.WhichOneof("input")), "INVALID_ARGUMENT", ""),
    GrpcCase("body too large", _set("request_id", "x" * (3 * 2**20)), "INVALID_ARGUMENT", "PAYLOAD_TOO_LARGE"),
)
