"""JSON bodies of one answer: the whole, or one chunk after the other."""

import time
from collections.abc import AsyncIterator, Iterator, Sequence
from typing import Any

from paceline.core.generation import FinishReason, GenerationChunk, RoundTrace, TokenLogprob
from paceline.gateway.answer import Answer
from paceline.gateway.openai.dialect import Dialect, LogprobBodies
from paceline.gateway.openai.summary_bodies import facts_body, rounds_body, usage_body
from paceline.gateway.token_texts import TokenTexts


class AnswerBodies:
    """Builds what goes over HTTP for one `Answer`. Use either `whole` or `chunks`, once."""

    def __init__(self, answer: Answer, dialect: Dialect, texts: TokenTexts) -> None:
        self._answer = answer
        self._dialect = dialect
        self._texts = texts
        self._created = int(time.time())
        self._with_logprobs = answer.generation.sampling.logprobs is not None
        prompt = answer.generation.prompt_token_ids
        self._logprobs: list[LogprobBodies] = [dialect.logprob_bodies(texts, prompt) for _ in range(answer.num_choices)]

    async def whole(self) -> dict[str, Any]:
        """The body of an answer that is not streamed. Raises the answer's PacelineError."""
        collected = [_Collected() for _ in range(self._answer.num_choices)]
        async for batch in self._answer:
            for chunk in batch:
                collected[chunk.choice].add(chunk)
        summary = self._answer.summary()
        facts = facts_body(summary)
        if self._answer.generation.explain:
            facts["rounds"] = [rounds_body(choice.rounds, self._texts) for choice in collected]
        choices = [
            self._dialect.whole(
                index, "".join(choice.texts), choice.finished, self._logprob_body(index, choice.logprobs)
            )
            for index, choice in enumerate(collected)
        ]
        return self._envelope(self._dialect.whole_object, choices) | {"usage": usage_body(summary), "paceline": facts}

    async def chunks(self, *, include_usage: bool) -> AsyncIterator[dict[str, Any]]:
        """The bodies of a streamed answer. Raises the answer's PacelineError.

        The last one carries the facts. The one before is held back until it is known not to be the last.
        """
        null_usage = {"usage": None} if include_usage else {}
        held: dict[str, Any] | None = None
        try:
            async for entry, extra in self._entries():
                if held is not None:
                    yield held
                held = self._envelope(self._dialect.chunk_object, [entry]) | null_usage | extra
                if entry["finish_reason"] is None:
                    yield held
                    held = None
        except Exception:  # whatever broke the others off, this choice is whole
            if held is not None:
                yield held
            raise
        summary = self._answer.summary()
        if include_usage:
            if held is not None:
                yield held
            held = self._envelope(self._dialect.chunk_object, []) | {"usage": usage_body(summary)}
        if held is not None:
            yield held | {"paceline": facts_body(summary)}

    async def _entries(self) -> AsyncIterator[tuple[dict[str, Any], dict[str, Any]]]:
        """Entries of "choices" in order, each with what else its chunk carries."""
        for index in range(self._answer.num_choices):
            opening = self._dialect.opening(index)
            if opening is not None:
                yield opening, {}
        async for batch in self._answer:
            for entry in self._batch_entries(batch):
                yield entry

    def _batch_entries(self, batch: Sequence[GenerationChunk]) -> Iterator[tuple[dict[str, Any], dict[str, Any]]]:
        """All tokens of a choice that got ready together travel in one entry."""
        collected: dict[int, _Collected] = {}
        for chunk in batch:
            collected.setdefault(chunk.choice, _Collected()).add(chunk)
        for index, new in collected.items():
            text = "".join(new.texts)
            logprobs = self._logprob_body(index, new.logprobs) if new.logprobs else None
            extra = {"paceline": {"rounds": rounds_body(new.rounds, self._texts)}} if new.rounds else {}
            if text or logprobs or extra:
                yield self._dialect.piece(index, text, logprobs), extra
            if new.finished is not None:
                yield self._dialect.ending(index, new.finished), {}

    def _logprob_body(self, index: int, logprobs: Sequence[TokenLogprob]) -> dict[str, Any] | None:
        return self._logprobs[index].body(logprobs) if self._with_logprobs else None

    def _envelope(self, object_name: str, choices: list[dict[str, Any]]) -> dict[str, Any]:
        return {
            "id": self._dialect.id_prefix + self._answer.request_id,
            "object": object_name,
            "created": self._created,
            "model": self._answer.identity.name,
            "system_fingerprint": self._answer.identity.system_fingerprint,
            "choices": choices,
        }


class _Collected:
    """Chunks of one choice, added up."""

    def __init__(self) -> None:
        self.texts: list[str] = []
        self.logprobs: list[TokenLogprob] = []
        self.rounds: list[RoundTrace] = []
        self.finished: FinishReason | None = None

    def add(self, chunk: GenerationChunk) -> None:
        """Take the next chunk."""
        self.texts.append(chunk.text)
        self.logprobs.extend(chunk.logprobs)
        self.rounds.extend(chunk.rounds)
        self.finished = chunk.finish or self.finished
