"""Batches of an answer's chunks, until the request's deadline."""

import asyncio
import logging
from collections.abc import AsyncGenerator, Sequence

from paceline.core.generation import ChoiceStats, FinishReason, GenerationChunk
from paceline.errors import PacelineError, TargetUnavailableError
from paceline.gateway.deadline import within

logger = logging.getLogger(__name__)

_END_WAIT_S = 5.0  # for a stream whose last token has arrived to see its end


class ChunkStream:
    """A stream that ends in one of two ways: every choice has finished, or an error.

    Raises what the stream raises, DeadlineExceededError, or TargetUnavailableError where the stream stops too
    early: half an answer never looks like a whole one.
    """

    def __init__(
        self,
        stream: AsyncGenerator[Sequence[GenerationChunk], None],
        *,
        num_choices: int,
        deadline_s: float,
        started_s: float,
    ) -> None:
        """``started_s`` is the loop's time at which the request came in; ``deadline_s`` counts from it."""
        self._stream = stream
        self._num_choices = num_choices
        self._deadline_s = deadline_s
        self._started_s = started_s
        self._finishes: dict[int, FinishReason] = {}  # by choice
        self.stats: dict[int, ChoiceStats] = {}  # by choice, once it has finished

    async def next_batch(self) -> Sequence[GenerationChunk] | None:
        """The next chunks that got ready together; None at the end."""
        if self.finished:
            return None
        try:
            async with within(self._deadline_s, self._started_s):
                batch = await anext(self._stream)
        except StopAsyncIteration:
            raise TargetUnavailableError("its stream ended in the middle of the answer") from None
        for chunk in batch:
            self._note(chunk)
        return batch

    @property
    def finished(self) -> bool:
        """Whether every choice has finished."""
        return len(self._finishes) == self._num_choices

    @property
    def outcome(self) -> str:
        """How the answer ended: "stop", "length" (if any choice did) or "abort"."""
        if not self.finished:
            return "abort"
        return "length" if FinishReason.LENGTH in self._finishes.values() else "stop"

    async def close(self) -> None:
        """Let a finished stream end by itself, so that nothing counts as aborted; end any other now."""
        try:
            if self.finished:
                async with asyncio.timeout(_END_WAIT_S):
                    await anext(self._stream, None)
        except (PacelineError, TimeoutError) as error:
            logger.warning("a stream ended badly after its last token: %s", error)
        finally:
            await self._stream.aclose()

    def _note(self, chunk: GenerationChunk) -> None:
        if chunk.finish is not None:
            self._finishes[chunk.choice] = chunk.finish
        if chunk.stats is not None:
            self.stats[chunk.choice] = chunk.stats
