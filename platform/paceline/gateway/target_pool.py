"""What the gateway needs from the fleet of target replicas; implemented where the fleet is known."""

from collections.abc import AsyncGenerator, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from typing import Protocol

from paceline.core.generation import GenerationChunk, GenerationRequest
from paceline.core.load import DrafterGroupStatus
from paceline.core.model_identity import ModelIdentity
from paceline.core.priority import Priority


@dataclass(frozen=True, slots=True)
class PoolSnapshot:
    """The fleet at one moment."""

    drafter_groups: tuple[DrafterGroupStatus, ...] = ()
    queued: int = 0  # requests that wait, in the gateway's queue and in engines
    running: int = 0  # choices that decode
    ready: bool = False  # whether at least one target replica can be reached


@dataclass(frozen=True, slots=True)
class PlaceWish:
    """What a request says about the place that it waits for."""

    tenant: str = ""  # tenants share the fleet evenly
    priority: Priority = Priority.NORMAL
    deadline: float | None = None  # the loop's time after which no place is of use
    resumed: bool = False  # goes on with an answer: ahead of new requests, and never refused as one too many
    exclude: frozenset[str] = frozenset()  # replicas that must not be chosen
    fingerprint: str | None = None  # the system fingerprint that the replica must have


class Place(Protocol):
    """A place on one target replica, reserved for one attempt."""

    @property
    def replica_id(self) -> str:
        """The replica."""

    @property
    def identity(self) -> ModelIdentity:
        """What the replica serves."""

    def stream(self, request: GenerationRequest) -> AsyncGenerator[Sequence[GenerationChunk], None]:
        """Run one attempt here and stream its chunks in batches; called once.

        An async generator: closing it aborts the attempt. Beside what the target itself refuses it raises
        TargetLostError where the replica died or fell silent, TargetLeavingError where it is about to go and the
        answer had better go on elsewhere, and TargetUnavailableError where the place was lost before anything ran.
        """


class TargetPool(Protocol):
    """Target replicas that serve the same model."""

    @property
    def identity(self) -> ModelIdentity | None:
        """The model; None until the first replica has said."""

    def snapshot(self) -> PoolSnapshot:
        """The fleet at this moment; cheap, never blocks."""

    def place(self, wish: PlaceWish) -> AbstractAsyncContextManager[Place]:
        """Wait for a place; leaving the block gives it back.

        Raises OverloadedError where the queue is full, or so long that waiting makes no sense, and
        TargetUnavailableError where no replica has been there for a while.
        """
