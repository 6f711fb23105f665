"""Paceline's own gRPC API. The client blocks, so every question has a thread; times are taken in that thread."""

import asyncio
import time
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from typing import Any

from paceline.bench.endpoint import round_counts
from paceline.bench.records import Arrival, BenchQuestion, DraftCounts, Recording
from paceline.client.conversation import AnswerFacts, ChatQuestion, ShownRound, Turn
from paceline.client.grpc_client import GrpcClient
from paceline.errors import AnswerFailedError

_MAX_IN_FLIGHT = 512


class GrpcEndpoint:
    """Asks a running Paceline over gRPC."""

    def __init__(self, address: str, *, model: str | None = None) -> None:
        self._address = address
        self._model = model
        self._client = GrpcClient(address)
        self._threads = ThreadPoolExecutor(max_workers=_MAX_IN_FLIGHT, thread_name_prefix="bench")
        self._facts: AnswerFacts | None = None  # of the newest answer: what the server says about itself

    async def ask(self, question: BenchQuestion) -> Recording:
        """Ask once; see `Endpoint.ask`. A cancelled question is read to its next event, then closed."""
        asked = _Asked()
        try:
            return await asyncio.get_running_loop().run_in_executor(self._threads, self._ask, question, asked)
        finally:
            asked.given_up = True

    async def describe(self) -> Mapping[str, Any]:
        """What answers have said so far."""
        described = {"endpoint": f"gRPC {self._address}", "prefix_cache": "as the server has it"}
        if self._facts is None:
            return described
        told = ("model", "verifier", "system_fingerprint")
        return described | {name: getattr(self._facts, name) for name in told}

    async def close(self) -> None:
        """Close the connection."""
        self._client.close()
        self._threads.shutdown(wait=False)

    def _ask(self, question: BenchQuestion, asked: "_Asked") -> Recording:
        arrivals: list[Arrival] = []
        texts: list[str] = []
        rounds: list[ShownRound] = []
        facts: AnswerFacts | None = None
        with closing(self._client.ask(chat_question(question, model=self._model))) as events:
            for event in events:
                now_s = time.perf_counter()
                if asked.given_up:
                    break
                if isinstance(event, AnswerFacts):
                    facts = event
                    continue
                if event.num_tokens:
                    arrivals.append(Arrival(now_s, event.num_tokens))
                texts.append(event.text)
                rounds.extend(event.rounds)
        if facts is None:
            raise AnswerFailedError("stream_broken", "the answer had no end.")
        self._facts = facts
        return Recording(
            arrivals=tuple(arrivals),
            text="".join(texts),
            prompt_tokens=facts.prompt_tokens,
            completion_tokens=facts.completion_tokens,
            exact_counts=True,
            drafting=drafting(facts, rounds),
            cached_tokens=facts.cached_tokens,
            route=facts.route,
        )


class _Asked:
    """Whether anybody still waits for the answer."""

    given_up = False


def chat_question(question: BenchQuestion, *, model: str | None) -> ChatQuestion:
    """The question as Paceline's clients take it, rounds asked for."""
    variant = question.variant
    return ChatQuestion(
        (Turn("user", question.prompt),),
        model=model,
        temperature=variant.temperature,
        max_tokens=question.max_tokens,
        seed=question.seed,
        speculation=variant.speculation or "auto",
        drafter=variant.drafter,
        max_draft_tokens=variant.max_draft_tokens,
        explain=True,
    )


def drafting(facts: AnswerFacts, rounds: list[ShownRound]) -> DraftCounts | None:
    """Counts of an answer from its facts; None where it names no tau."""
    if not facts.tau:
        return None
    counts = tuple(
        round_counts(len(entry.drafted), entry.accepted, parents=entry.parents, path=entry.path) for entry in rounds
    )
    tested = round(facts.accepted_tokens / facts.alpha) if facts.alpha else sum(entry.tested for entry in counts)
    return DraftCounts(round(facts.completion_tokens / facts.tau), tested, facts.accepted_tokens, counts)
