"""One answer in progress: a target's stream under the request's deadline."""

from collections.abc import AsyncIterator, Sequence
from typing import Self

from paceline.core.generation import GenerationChunk, GenerationRequest
from paceline.core.model_identity import ModelIdentity
from paceline.gateway.answer_summary import AnswerSummary, summarise
from paceline.gateway.chunk_stream import ChunkStream
from paceline.gateway.request_metrics import RequestMetrics


class Answer:
    """An admitted request: iterate it for batches of chunks, then ask for its summary.

    Use it as an async context manager; leaving the block ends the generation at any point.
    """

    def __init__(
        self,
        generation: GenerationRequest,
        stream: ChunkStream,
        *,
        request_id: str,
        first_batch: Sequence[GenerationChunk],
        identity: ModelIdentity,
        verifier: str,
        watch: RequestMetrics,
    ) -> None:
        self.generation = generation
        self.request_id = request_id
        self.identity = identity
        self._verifier = verifier
        self._stream = stream
        self._watch = watch
        self._first_batch: Sequence[GenerationChunk] | None = first_batch

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        self._watch.ended(self._stream.outcome)
        await self._stream.close()

    async def __aiter__(self) -> AsyncIterator[Sequence[GenerationChunk]]:
        """Every batch, the first one included. Raises a PacelineError where the answer breaks off."""
        batch, self._first_batch = self._first_batch, None
        while batch is not None:
            self._watch.tokens(sum(len(chunk.token_ids) for chunk in batch))
            yield batch
            try:
                batch = await self._stream.next_batch()
            except Exception as error:  # counted, whatever it is
                self._watch.failed(error)
                raise

    @property
    def num_choices(self) -> int:
        """Choices that were asked for."""
        return self.generation.num_choices

    def summary(self) -> AnswerSummary:
        """Facts about the answer; complete once iteration has ended."""
        return summarise(
            self._stream.stats.values(),
            plan=self.generation.plan,
            prompt_tokens=len(self.generation.prompt_token_ids),
            seed=self.generation.seed,
            identity=self.identity,
            verifier=self._verifier,
        )
