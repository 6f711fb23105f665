"""Any OpenAI-compatible HTTP endpoint, streamed with usage; Paceline's extensions are read where they are there."""

import time
from collections.abc import Mapping
from typing import Any
from urllib.parse import urlsplit

import httpx

from paceline.bench.arrivals import shared_arrivals
from paceline.bench.endpoint import Api, round_counts
from paceline.bench.records import Arrival, BenchQuestion, DraftCounts, Recording
from paceline.client.conversation import ShownRound
from paceline.client.rest import read_round
from paceline.client.sse import failure, read_events_async
from paceline.errors import AnswerFailedError, ConfigError, ServiceUnreachableError
from paceline.rpc.loopback import is_loopback

_CONNECT_TIMEOUT_S = 5.0

_PATHS: Mapping[Api, str] = {Api.CHAT: "/chat/completions", Api.COMPLETIONS: "/completions"}


class HttpEndpoint:
    """Asks one server. `connect` finds out what it is."""

    def __init__(self, http: httpx.AsyncClient, root: str, *, api: Api, model: Mapping[str, Any]) -> None:
        self._http = http
        self._root = root
        self._api = api
        self._model = model
        self._is_paceline = "paceline" in model

    @classmethod
    async def connect(
        cls,
        url: str,
        *,
        api: Api = Api.CHAT,
        model: str | None = None,
        api_key: str | None = None,
        transport: httpx.AsyncBaseTransport | None = None,
    ) -> "HttpEndpoint":
        """Look at the server's model list. ``url`` is its root, with or without /v1.

        Raises ServiceUnreachableError, AnswerFailedError, and ConfigError where a model must be named.
        """
        root = url.rstrip("/").removesuffix("/v1") + "/v1"
        http = httpx.AsyncClient(
            transport=transport,
            timeout=httpx.Timeout(None, connect=_CONNECT_TIMEOUT_S),
            limits=httpx.Limits(max_connections=None, max_keepalive_connections=None),
            headers={"authorization": f"Bearer {api_key}"} if api_key else None,
            # A web proxy that the environment names cannot reach this machine's own addresses.
            trust_env=not is_loopback(urlsplit(root).hostname or ""),
        )
        try:
            entry = _choose(await _models(http, root), model)
        except BaseException:
            await http.aclose()
            raise
        return cls(http, root, api=api, model=entry)

    async def ask(self, question: BenchQuestion) -> Recording:
        """Ask once; see `Endpoint.ask`."""
        answer = _Answer()
        url = self._root + _PATHS[self._api]
        try:
            async with self._http.stream("POST", url, json=self._body(question)) as response:
                if response.status_code != httpx.codes.OK:
                    await response.aread()
                    raise _refusal(response)
                async for chunk in read_events_async(response.aiter_lines()):
                    answer.add(chunk, time.perf_counter())
        except httpx.ConnectError as error:
            raise ServiceUnreachableError(self._root, str(error)) from error
        except httpx.HTTPError as error:
            raise AnswerFailedError("connection_lost", f"{error}.") from error
        return answer.recording()

    async def describe(self) -> Mapping[str, Any]:
        """The server's own entry for the model."""
        return {
            "endpoint": f"HTTP {self._root}",
            "api": self._api.value,
            "prefix_cache": "as the server has it",
            "model": dict(self._model),
        }

    async def close(self) -> None:
        """Close the connections."""
        await self._http.aclose()

    def _body(self, question: BenchQuestion) -> dict[str, Any]:
        variant = question.variant
        asked: dict[str, Any] = (
            {"messages": [{"role": "user", "content": question.prompt}]}
            if self._api is Api.CHAT
            else {"prompt": question.prompt}
        )
        asked |= {
            "model": self._model["id"],
            "max_tokens": question.max_tokens,
            "temperature": variant.temperature,
            "seed": question.seed,
            "stream": True,
            "stream_options": {"include_usage": True},
        }
        if not self._is_paceline:
            return asked
        wish = {
            "mode": variant.speculation or "auto",
            "drafter": variant.drafter,
            "max_draft_tokens": variant.max_draft_tokens,
        }
        return asked | {"explain": True, "speculation": {key: v for key, v in wish.items() if v is not None}}

    @property
    def is_paceline(self) -> bool:
        """Whether the server knows the field ``speculation``."""
        return self._is_paceline


class _Answer:
    """Collects the events of one answer."""

    def __init__(self) -> None:
        self._pieces: list[tuple[float, int]] = []  # (time, characters)
        self._rounds: list[tuple[float, list[ShownRound]]] = []
        self._texts: list[str] = []
        self._usage: dict[str, Any] = {}
        self._facts: dict[str, Any] = {}

    def add(self, chunk: dict[str, Any], now_s: float) -> None:
        """Take one event."""
        extra = chunk.get("paceline") or {}
        rounds = [read_round(entry) for entry in extra.get("rounds", ())]
        if rounds:
            self._rounds.append((now_s, rounds))
        if "route" in extra:
            self._facts = extra
        self._usage = chunk.get("usage") or self._usage
        text = "".join(_text(choice) for choice in chunk.get("choices") or ())
        if text:
            self._pieces.append((now_s, len(text)))
            self._texts.append(text)

    def recording(self) -> Recording:
        """The whole answer. Raises AnswerFailedError if the server sent no usage."""
        if "completion_tokens" not in self._usage:
            raise AnswerFailedError("no_usage", "the server sent no usage, so its tokens cannot be counted.")
        total = int(self._usage["completion_tokens"])
        exact = tuple(Arrival(at_s, sum(map(_committed, rounds))) for at_s, rounds in self._rounds)
        is_exact = sum(arrival.num_tokens for arrival in exact) == total
        return Recording(
            arrivals=exact if is_exact else shared_arrivals(total, self._pieces),
            text="".join(self._texts),
            prompt_tokens=int(self._usage.get("prompt_tokens", 0)),
            completion_tokens=total,
            exact_counts=is_exact,
            drafting=self._drafting(total),
            cached_tokens=int((self._usage.get("prompt_tokens_details") or {}).get("cached_tokens") or 0),
            route=self._facts.get("route", ""),
        )

    def _drafting(self, total: int) -> DraftCounts | None:
        tau, alpha = self._facts.get("tau"), self._facts.get("alpha")
        if not tau:
            return None
        counts = tuple(
            round_counts(len(entry.drafted), entry.accepted, parents=entry.parents, path=entry.path)
            for _, rounds in self._rounds
            for entry in rounds
        )
        accepted = int((self._usage.get("completion_tokens_details") or {}).get("accepted_prediction_tokens") or 0)
        tested = round(accepted / alpha) if alpha else sum(entry.tested for entry in counts)
        return DraftCounts(round(total / tau), tested, accepted, counts)


def _text(choice: dict[str, Any]) -> str:
    """New text of a chat or completion choice; reasoning that a server sends apart is text too."""
    delta = choice.get("delta")
    if delta is None:
        return choice.get("text") or ""
    return (delta.get("reasoning_content") or "") + (delta.get("content") or "")


def _committed(entry: ShownRound) -> int:
    return entry.accepted + (entry.target_token is not None)


def _choose(listed: list[dict[str, Any]], wanted: str | None) -> dict[str, Any]:
    chosen = [entry for entry in listed if wanted in (None, entry.get("id"))]
    if len(chosen) != 1:
        names = ", ".join(str(entry.get("id")) for entry in listed) or "none"
        raise ConfigError(f"Name one model of the server with --model; it lists: {names}.")
    return chosen[0]


async def _models(http: httpx.AsyncClient, root: str) -> list[dict[str, Any]]:
    try:
        response = await http.get(f"{root}/models", timeout=30.0)
    except (httpx.ConnectError, httpx.ConnectTimeout, httpx.UnsupportedProtocol, httpx.InvalidURL) as error:
        raise ServiceUnreachableError(root, str(error)) from error
    except httpx.HTTPError as error:
        raise AnswerFailedError("connection_lost", f"{error}.") from error
    if response.status_code != httpx.codes.OK:
        raise _refusal(response)
    listed: list[dict[str, Any]] = response.json().get("data", [])
    return listed


def _refusal(response: httpx.Response) -> AnswerFailedError:
    try:
        body = response.json()
    except ValueError:
        body = None
    if isinstance(body, dict) and isinstance(body.get("error"), dict):
        return failure(body)
    return AnswerFailedError(str(response.status_code), "the server refused without an OpenAI error body.")
