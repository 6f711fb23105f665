"""Asks through the REST API."""

import json
from collections.abc import Generator, Iterator
from typing import Any
from urllib.parse import urlsplit

import httpx

from paceline.client.conversation import AnswerEvent, AnswerFacts, ChatQuestion, ShownRound, ShownToken, TextPiece
from paceline.client.sse import failure, read_events
from paceline.errors import AnswerFailedError, ServiceUnreachableError
from paceline.rpc.loopback import is_loopback

_CONNECT_TIMEOUT_S = 5.0


class RestClient:
    """A connection to one gateway."""

    def __init__(self, url: str, *, transport: httpx.BaseTransport | None = None) -> None:
        """``url`` is the server's root, with or without /v1."""
        self._url = url.rstrip("/").removesuffix("/v1")
        # Answers may take long to start, so only connecting has a limit.
        timeout = httpx.Timeout(None, connect=_CONNECT_TIMEOUT_S)
        # A web proxy that the environment names cannot reach this machine's own addresses.
        self._http = httpx.Client(
            transport=transport, timeout=timeout, trust_env=not is_loopback(urlsplit(self._url).hostname or "")
        )

    def ask(self, question: ChatQuestion) -> Generator[AnswerEvent, None, None]:
        """Stream the answer; see `ChatClient.ask`."""
        try:
            with self._http.stream("POST", f"{self._url}/v1/chat/completions", json=request_body(question)) as response:
                if response.status_code != httpx.codes.OK:
                    raise _refusal(response)
                yield from _answer_events(read_events(response.iter_lines()))
        except (httpx.ConnectError, httpx.ConnectTimeout, httpx.UnsupportedProtocol, httpx.InvalidURL) as error:
            raise ServiceUnreachableError(self._url, str(error)) from error
        except httpx.HTTPError as error:
            raise AnswerFailedError("connection_lost", f"{error}.") from error

    def close(self) -> None:
        """Close the connection."""
        self._http.close()


def request_body(question: ChatQuestion) -> dict[str, Any]:
    """The JSON body; what is None is left to the server."""
    fields = {
        "messages": [{"role": turn.role, "content": turn.content} for turn in question.turns],
        "model": question.model,
        "temperature": question.temperature,
        "max_completion_tokens": question.max_tokens,
        "seed": question.seed,
        "speculation": {"mode": question.speculation}
        | ({"drafter": question.drafter} if question.drafter is not None else {})
        | ({"max_draft_tokens": question.max_draft_tokens} if question.max_draft_tokens is not None else {}),
        "explain": question.explain,
        "stream": True,
        "stream_options": {"include_usage": True},
    }
    return {name: value for name, value in fields.items() if value is not None}


def _refusal(response: httpx.Response) -> AnswerFailedError:
    try:
        body = json.loads(response.read())
    except ValueError:
        body = None
    if isinstance(body, dict) and isinstance(body.get("error"), dict):
        return failure(body)
    return AnswerFailedError(str(response.status_code), "the server is not Paceline, or something stands before it.")


def _answer_events(chunks: Iterator[dict[str, Any]]) -> Iterator[AnswerEvent]:
    finish_reason = ""
    for chunk in chunks:
        extra = chunk.get("paceline") or {}
        for choice in chunk.get("choices", ()):
            finish_reason = choice.get("finish_reason") or finish_reason
            text = choice["delta"].get("content") or ""
            rounds = tuple(read_round(entry) for entry in extra.get("rounds", ()))
            if text or rounds:
                yield TextPiece(text, rounds)
        if chunk.get("usage"):
            yield _facts(chunk, finish_reason)


def read_round(entry: dict[str, Any]) -> ShownRound:
    """A round from its JSON."""
    return ShownRound(
        drafted=tuple(_token(token) for token in entry["drafted"]),
        accepted=entry["accepted"],
        target_token=_token(entry["target_token"]) if entry["target_token"] else None,
        wait_ms=entry["wait_ms"],
        draft_ms=entry["draft_ms"],
        verify_ms=entry["verify_ms"],
        path=tuple(entry.get("accepted_path", ())),
        parents=tuple(entry.get("parents", ())),
    )


def _token(entry: dict[str, Any]) -> ShownToken:
    return ShownToken(entry["id"], entry["text"])


def _facts(chunk: dict[str, Any], finish_reason: str) -> AnswerFacts:
    usage, facts = chunk["usage"], chunk.get("paceline")
    if facts is None:
        raise AnswerFailedError("not_paceline", "the server answers, but it is not Paceline.")
    details = usage["completion_tokens_details"]
    return AnswerFacts(
        model=chunk["model"],
        finish_reason=finish_reason,
        prompt_tokens=usage["prompt_tokens"],
        completion_tokens=usage["completion_tokens"],
        accepted_tokens=details["accepted_prediction_tokens"],
        rejected_tokens=details["rejected_prediction_tokens"],
        route=facts["route"],
        reason=facts["reason"],
        drafter=facts["drafter"],
        switches=facts["switches"],
        tau=facts["tau"],
        alpha=facts["alpha"],
        seed=facts["seed"],
        resumed=facts["resumed"],
        verifier=facts["verifier"],
        system_fingerprint=chunk["system_fingerprint"],
        cached_tokens=usage.get("prompt_tokens_details", {}).get("cached_tokens", 0),
    )
