"""What a target replica needs from an engine; implemented by `backends/`."""

from collections.abc import AsyncIterator, Sequence
from typing import Protocol

from paceline.core.generation import GenerationChunk, GenerationRequest
from paceline.core.load import TargetLoad
from paceline.core.model_identity import ModelIdentity


class EngineBackend(Protocol):
    """An engine with continuous batching. Methods are called from one asyncio loop."""

    @property
    def identity(self) -> ModelIdentity:
        """The model that is served."""

    def generate(self, request: GenerationRequest) -> AsyncIterator[Sequence[GenerationChunk]]:
        """Stream batches of chunks until every choice has finished.

        Closing the iterator aborts the request. Raises ContextLengthExceededError or OverloadedError
        before the first batch, EngineFailedError at any time.
        """

    async def abort(self, key: str) -> None:
        """End a request, at whatever point it is. Unknown keys are ignored."""

    def snapshot(self) -> TargetLoad:
        """Load at this moment."""

    @property
    def stalled_s(self) -> float:
        """Time since work that waits has last got on, in seconds; 0 where none waits."""

    def check_health(self) -> None:
        """Raise EngineFailedError if the engine's thread died or makes no progress."""

    async def close(self) -> None:
        """End all requests and give back threads and memory."""
