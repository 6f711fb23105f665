"""A client of the REST door."""

import asyncio
import json
import socket
import time
from typing import Any

import httpx

from paceline.gateway.gateway_request import GatewayRequest
from paceline.text.chat import ChatMessage
from soak.hearing import Hearing
from soak.jobs import Door, Job, Manner
from soak.malformed import REST_CASES

_SMALL_BUFFER = [(socket.SOL_SOCKET, socket.SO_RCVBUF, 2048)]
_TIMEOUT_S = 180.0


class RestClient:
    """Keeps connections between requests, as applications do; slow readers have their own."""

    def __init__(self, url: str) -> None:
        limits = httpx.Limits(max_connections=None, max_keepalive_connections=64)
        self._http = httpx.AsyncClient(base_url=url, timeout=_TIMEOUT_S, limits=limits, trust_env=False)
        self._slow = httpx.AsyncClient(
            base_url=url,
            timeout=_TIMEOUT_S,
            transport=httpx.AsyncHTTPTransport(limits=limits, socket_options=_SMALL_BUFFER),
            trust_env=False,
        )

    async def close(self) -> None:
        """Close all connections."""
        await self._http.aclose()
        await self._slow.aclose()

    async def ask(self, job: Job, question: GatewayRequest, hearing: Hearing) -> None:
        """Do the job; everything that came is in ``hearing``, however it ends."""
        path, body = rest_body(job, question)
        content = json.dumps(body).encode()
        if job.manner is Manner.MALFORMED:
            content = REST_CASES[job.case].spoil(body)
        http = self._slow if job.manner is Manner.SLOW else self._http
        try:
            async with http.stream(
                "POST", path, content=content, headers={"content-type": "application/json"}
            ) as response:
                if response.status_code != 200:
                    _note_refusal(hearing, response, await response.aread())
                elif job.door is Door.REST_STREAM and job.manner is not Manner.MALFORMED:
                    await _read_stream(response, job, hearing)
                else:
                    _note_whole(hearing, json.loads(await response.aread()))
        except (httpx.HTTPError, ValueError, KeyError, TypeError) as error:
            hearing.broken = f"{type(error).__name__}: {error}"


def rest_body(job: Job, question: GatewayRequest) -> tuple[str, dict[str, Any]]:
    """Path and body of a request."""
    body = _sampling_body(question)
    if question.sampling.logprobs is not None:
        wanted = question.sampling.logprobs
        body |= {"logprobs": True, "top_logprobs": wanted} if question.prompt_is_chat else {"logprobs": wanted}
    wish = job.speculation
    speculation = {"mode": wish.mode.value, "drafter": wish.drafter, "max_draft_tokens": wish.max_draft_tokens}
    body["speculation"] = {key: value for key, value in speculation.items() if value is not None}
    if job.door is Door.REST_STREAM:
        body |= {"stream": True, "stream_options": {"include_usage": True}}
    if question.prompt_is_chat:
        messages = [item for item in question.prompt if isinstance(item, ChatMessage)]
        return "/v1/chat/completions", body | {"messages": [message.as_template_input() for message in messages]}
    return "/v1/completions", body | {"prompt": question.prompt}


def _sampling_body(question: GatewayRequest) -> dict[str, Any]:
    sampling = question.sampling
    names = ("temperature", "top_p", "top_k", "min_p", "repetition_penalty", "presence_penalty", "frequency_penalty")
    return {name: getattr(sampling, name) for name in names} | {
        "logit_bias": {str(token_id): bias for token_id, bias in sampling.logit_bias},
        "min_tokens": sampling.min_tokens,
        "max_tokens": question.max_tokens,
        "stop": sampling.stop,
        "stop_token_ids": sampling.stop_token_ids,
        "bad_words": question.bad_words,
        "ignore_eos": sampling.ignore_eos,
        "seed": question.seed,
        "n": question.num_choices,
    }


async def _read_stream(response: httpx.Response, job: Job, hearing: Hearing) -> None:
    num_chunks = 0
    async for line in response.aiter_lines():
        if not line.startswith("data: "):
            continue
        data = line.removeprefix("data: ")
        if data == "[DONE]":
            hearing.ended = not hearing.in_band
            return
        event = json.loads(data)
        if "error" in event:
            hearing.in_band, hearing.message = str(event["error"]["code"]), str(event["error"]["message"])
            continue
        _note_event(hearing, event)
        num_chunks += 1
        if job.manner is Manner.CANCELLED and num_chunks >= job.num_chunks:
            hearing.gave_up = True
            return
        if job.manner is Manner.SLOW:
            await asyncio.sleep(job.patience_s)
    hearing.broken = "the stream stopped without its last event"


def _note_event(hearing: Hearing, event: dict[str, Any]) -> None:
    for entry in event["choices"]:
        choice = hearing.choice(entry["index"])
        piece = entry["delta"].get("content", "") if "delta" in entry else entry["text"]
        if piece:
            hearing.spoken()
            choice.text += piece
        choice.logprobs += _logprobs(entry)
        choice.finish = entry["finish_reason"] or choice.finish
    _note_facts(hearing, event)


def _note_whole(hearing: Hearing, body: dict[str, Any]) -> None:
    hearing.spoken()
    for entry in body["choices"]:
        choice = hearing.choice(entry["index"])
        choice.text = entry["message"]["content"] if "message" in entry else entry["text"]
        choice.finish = entry["finish_reason"]
        choice.logprobs = _logprobs(entry)
    _note_facts(hearing, body)
    hearing.ended = True


def _note_facts(hearing: Hearing, body: dict[str, Any]) -> None:
    if usage := body.get("usage"):
        hearing.prompt_tokens, hearing.completion_tokens = usage["prompt_tokens"], usage["completion_tokens"]
        hearing.accepted = usage["completion_tokens_details"]["accepted_prediction_tokens"]
    if "route" in (facts := body.get("paceline") or {}):
        hearing.route, hearing.drafter, hearing.resumed = facts["route"], facts["drafter"] or "", facts["resumed"]
        hearing.seed = facts["seed"] % 2**64


def _logprobs(entry: dict[str, Any]) -> list[float]:
    found = entry.get("logprobs")
    if not found:
        return []
    if "content" in found:
        return [token["logprob"] for token in found["content"]]
    return list(found["token_logprobs"])


def _note_refusal(hearing: Hearing, response: httpx.Response, content: bytes) -> None:
    hearing.refusal = str(response.status_code)
    hearing.retry_after = response.headers.get("retry-after")
    try:
        error = json.loads(content)["error"]
        hearing.code, hearing.message = str(error["code"]).lower(), str(error["message"])
    except (ValueError, KeyError, TypeError):
        hearing.code = f"no OpenAI error: {content[:120]!r}"
    hearing.total_s = time.monotonic() - hearing.started_s
