"""Joins the chunks of one stream: repeats are dropped, a gap is an error, a short answer is one too."""

import dataclasses
from collections.abc import Sequence

from paceline.core.generation import ChoiceStart, FinishReason, GenerationChunk
from paceline.errors import EngineFailedError, StreamGapError, TargetLostError


@dataclasses.dataclass(slots=True)
class _Progress:
    num_tokens: int = 0
    num_chars: int = 0
    finished: bool = False


class ChunkContinuity:
    """What has arrived of each choice of one attempt, and of the attempts before it."""

    def __init__(self, num_choices: int, resumed: Sequence[ChoiceStart] = ()) -> None:
        """Choices that a resumed attempt does not go on with have ended before it."""
        self._choices = [_Progress(finished=bool(resumed)) for _ in range(num_choices)]
        for start in resumed:
            self._choices[start.choice] = _Progress(len(start.output_token_ids), start.text_offset)

    def admit(self, chunks: Sequence[GenerationChunk]) -> list[GenerationChunk]:
        """Return what is new in ``chunks``. Raises StreamGapError where tokens or text are missing."""
        fresh = (self._admit(chunk) for chunk in chunks)
        return [chunk for chunk in fresh if chunk is not None]

    @property
    def is_complete(self) -> bool:
        """Whether every choice has finished."""
        return all(progress.finished for progress in self._choices)

    def check_complete(self) -> None:
        """Raise TargetLostError if the stream ended while a choice was unfinished."""
        if not self.is_complete:
            raise TargetLostError("the token stream ended before the answer did")

    def _admit(self, chunk: GenerationChunk) -> GenerationChunk | None:
        if not 0 <= chunk.choice < len(self._choices):
            raise EngineFailedError(f"the stream has a choice {chunk.choice} that was not asked for")
        progress = self._choices[chunk.choice]
        if progress.finished:
            return None
        repeated_tokens = progress.num_tokens - chunk.first_index
        repeated_chars = progress.num_chars - chunk.text_offset
        if repeated_tokens < 0:
            raise StreamGapError(progress.num_tokens, chunk.first_index)
        if repeated_chars < 0:
            raise StreamGapError(progress.num_chars, chunk.text_offset)
        if repeated_tokens or repeated_chars:
            chunk = dataclasses.replace(
                chunk,
                first_index=progress.num_tokens,
                token_ids=chunk.token_ids[repeated_tokens:],
                logprobs=chunk.logprobs[repeated_tokens:],
                text=chunk.text[repeated_chars:],
                text_offset=progress.num_chars,
            )
            if not chunk.token_ids and not chunk.text and chunk.finish is None:
                return None
        progress.num_tokens += len(chunk.token_ids)
        progress.num_chars += len(chunk.text)
        if chunk.finish is not None:
            progress.finished = True
            self._check_count(chunk, progress)
        return chunk

    @staticmethod
    def _check_count(chunk: GenerationChunk, progress: _Progress) -> None:
        # The finish names how many tokens there were: one that overtook the last of them shows here.
        stats = chunk.stats
        if stats is None or chunk.finish is FinishReason.ABORT:
            return
        if stats.completion_tokens != progress.num_tokens:
            raise StreamGapError(progress.num_tokens, stats.completion_tokens)
