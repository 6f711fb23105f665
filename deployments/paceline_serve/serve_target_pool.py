"""The gateway's fleet of target replicas: places come through Ray Serve, tokens straight from the replicas."""

import contextlib
import functools
import threading
from collections import defaultdict
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import replace
from statistics import fmean
from typing import Any, Protocol

from ray.exceptions import RayError
from ray.serve.exceptions import RayServeException

from paceline.config.schema import PeerConfig, Tunables
from paceline.core.generation import GenerationChunk, GenerationRequest
from paceline.core.load import DrafterGroupStatus, TargetLoad
from paceline.core.model_identity import ModelIdentity
from paceline.errors import (
    CacheCorruptionError,
    EngineFailedError,
    StreamGapError,
    TargetLeavingError,
    TargetLostError,
    TargetUnavailableError,
)
from paceline.gateway.place_queue import Lease, PlaceQueue
from paceline.gateway.target_pool import PlaceWish, PoolSnapshot
from paceline.telemetry import catalogue
from paceline.telemetry.metrics import Metrics
from paceline_serve.attempt_hold import AttemptHold, HoldResponse
from paceline_serve.membership import Membership
from paceline_serve.target_fleet import TargetFleet

_KNOWN_FOR_S = 2.0  # a death in the first moments of a departure may be why Ray Serve took the replica off its list


class HoldHandle(Protocol):
    """What is used of ``handle.hold``, a method of a Ray Serve deployment handle."""

    def choose_replica(self, **hints: Any) -> AbstractAsyncContextManager[Any]:
        """Reserve a place on one replica for the length of the block; `PeerRouter` says what the hints are."""

    def dispatch(self, selection: Any, key: str) -> HoldResponse:
        """Call ``hold(key)`` on the replica that was chosen."""


class ServeTargetPool:
    """Implements `paceline.gateway.target_pool.TargetPool`. Used from one asyncio loop."""

    def __init__(
        self,
        hold: HoldHandle,
        membership: Membership,
        *,
        peer: PeerConfig,
        max_taken: int,
        metrics: Metrics,
        serves: Callable[[ModelIdentity], bool],
        migrate_after_s: float,
        max_wait_s: float = Tunables().max_queue_wait_s,
    ) -> None:
        """Begin with the replicas that ``membership`` knows, and follow it.

        ``max_taken`` limits requests that wait and requests that run, together; ``max_wait_s`` the wait of each.
        ``serves`` tells the gateway's own model from others, which replicas may have while the model is changed.
        A replica that is about to go keeps its streams for ``migrate_after_s``.
        """
        self._hold = hold
        self._metrics = metrics
        self._groups: tuple[DrafterGroupStatus, ...] = ()
        self._fleet = TargetFleet(membership, peer=peer, serves=serves, migrate_after_s=migrate_after_s)
        self._slots: PlaceQueue[Any] = PlaceQueue(
            self._reserve,
            suits=lambda wish, selection: self._fleet.suits(wish, selection.replica_id),
            max_taken=max_taken,
            max_wait_s=max_wait_s,
            is_empty=lambda: self._fleet.is_empty,
            on_change=self._count,
            on_shed=lambda reason: metrics.count(catalogue.SHED_REQUESTS, reason=reason),
        )

    @property
    def identity(self) -> ModelIdentity | None:
        """The model; None until the first replica has said."""
        return self._fleet.identity

    def apply_tunables(self, tunables: Tunables) -> None:
        """Use new settings for requests that arrive from now on."""
        self._slots.max_wait_s = tunables.max_queue_wait_s

    def snapshot(self) -> PoolSnapshot:
        """The fleet as its newest load reports show it."""
        loads = self._fleet.loads()
        # While every report is too old the groups are still called as they were.
        self._groups = _merge_groups(loads) or self._groups
        return PoolSnapshot(
            drafter_groups=self._groups,
            queued=self._slots.num_waiting + sum(load.waiting for load in loads),
            running=sum(load.running for load in loads),
            ready=bool(loads),
        )

    @contextlib.asynccontextmanager
    async def place(self, wish: PlaceWish) -> AsyncIterator["ReplicaPlace"]:
        """A place on one replica; see `TargetPool.place`."""
        async with self._slots.take(wish) as lease:
            self._metrics.observe(catalogue.QUEUE_TIME, lease.waited_s)
            yield ReplicaPlace(self, lease)

    async def close(self) -> None:
        """End everything that still runs."""
        await self._slots.close()
        await self._fleet.close()

    async def stream_on(
        self, request: GenerationRequest, lease: Lease[Any]
    ) -> AsyncGenerator[Sequence[GenerationChunk], None]:
        """Run an attempt at a place that was taken; see `Place.stream`."""
        replica_id = lease.selection.replica_id
        target = self._fleet.find(replica_id)
        if target is None or target.is_leaving:
            raise TargetLeavingError(f"replica {replica_id} has just left")
        try:
            hold = AttemptHold(self._dispatch(lease.selection, request.key), target, request.key)
            lease.settle = hold.settle
            async with contextlib.aclosing(target.stream(request)) as batches:
                batch = await hold.first_batch(batches)
                while batch is not None:
                    yield batch
                    batch = await anext(batches, None)
            hold.completed()
        except TargetLeavingError:
            raise
        except TargetUnavailableError as error:
            self._fleet.failed(replica_id)
            if isinstance(error, TargetLostError) and target.leaving_for_s > _KNOWN_FOR_S:
                raise TargetLeavingError(f"replica {replica_id} has gone: {error.args[0]}") from error
            raise
        except (EngineFailedError, CacheCorruptionError, StreamGapError):
            self._fleet.failed(replica_id)  # one whose steps fail looks idle, and would get every request
            raise

    def identity_of(self, replica_id: str) -> ModelIdentity:
        """What a replica serves. Raises TargetLeavingError if it has left."""
        target = self._fleet.find(replica_id)
        if target is None:
            raise TargetLeavingError(f"replica {replica_id} has just left")
        return target.identity

    def _dispatch(self, selection: Any, key: str) -> HoldResponse:
        try:
            return self._hold.dispatch(selection, key)
        except (RayError, RayServeException) as error:
            raise TargetUnavailableError(type(error).__name__) from error

    def _count(self) -> None:
        self._metrics.set(catalogue.QUEUED_REQUESTS, self._slots.num_waiting)
        self._metrics.set(catalogue.OPEN_STREAMS, self._slots.num_held)

    @contextlib.asynccontextmanager
    async def _reserve(self, wish: PlaceWish, withdrawn: threading.Event) -> AsyncIterator[Any]:
        preferred = self._fleet.preferred(wish)
        hints = {
            "prefer": () if preferred is None else (preferred,),
            "exclude": functools.partial(self._fleet.excluded, wish),
            "withdrawn": withdrawn,
        }
        with self._fleet.asking(preferred) as asking:
            async with self._hold.choose_replica(**hints) as selection:
                asking.got(selection.replica_id)
                yield selection


class ReplicaPlace:
    """Implements `paceline.gateway.target_pool.Place`."""

    def __init__(self, pool: ServeTargetPool, lease: Lease[Any]) -> None:
        self.replica_id: str = lease.selection.replica_id
        self._pool = pool
        self._lease = lease

    @property
    def identity(self) -> ModelIdentity:
        """What the replica serves. Raises TargetLeavingError if it has left."""
        return self._pool.identity_of(self.replica_id)

    def stream(self, request: GenerationRequest) -> AsyncGenerator[Sequence[GenerationChunk], None]:
        """Run one attempt here; see `Place.stream`."""
        return self._pool.stream_on(request, self._lease)


def _merge_groups(loads: Sequence[TargetLoad]) -> tuple[DrafterGroupStatus, ...]:
    """Groups as all targets see them together: live for any target is live, and the gain is the mean of those known."""
    merged: dict[str, DrafterGroupStatus] = {}
    gains: defaultdict[str, list[float]] = defaultdict(list)
    for load in loads:
        for group in load.drafter_groups:
            if group.name not in merged or (group.live and not merged[group.name].live):
                merged[group.name] = group
            if group.gain is not None:
                gains[group.name].append(group.gain)
    return tuple(
        replace(group, gain=fmean(gains[group.name]) if gains[group.name] else None) for group in merged.values()
    )
