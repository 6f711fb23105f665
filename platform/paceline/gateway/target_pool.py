"""What the gateway needs from the fleet of target replicas; implemented where the fleet is known."""

from collections.abc import AsyncGenerator, Sequence
from dataclasses import dataclass
from typing import Protocol

from paceline.core.generation import GenerationChunk, GenerationRequest
from paceline.core.load import DrafterGroupStatus
from paceline.core.model_identity import ModelIdentity


@dataclass(frozen=True, slots=True)
class PoolSnapshot:
    """The fleet at one moment."""

    drafter_groups: tuple[DrafterGroupStatus, ...] = ()
    queued: int = 0  # requests that wait, in the gateway's queue and in engines
    running: int = 0  # choices that decode
    ready: bool = False  # whether at least one target replica can be reached


class TargetPool(Protocol):
    """Target replicas that serve the same model."""

    @property
    def identity(self) -> ModelIdentity | None:
        """The model; None until the first replica has said."""

    def snapshot(self) -> PoolSnapshot:
        """The fleet at this moment; cheap, never blocks."""

    def stream(self, request: GenerationRequest) -> AsyncGenerator[Sequence[GenerationChunk], None]:
        """Run a request on one replica and stream its chunks in batches.

        An async generator: closing it aborts the request and gives its place back. It raises a
        PacelineError before the first batch (nothing was started) or at any later point.
        """
