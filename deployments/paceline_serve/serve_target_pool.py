"""The gateway's fleet of target replicas: places come through Ray Serve, tokens straight from the replicas."""

import asyncio
import contextlib
import logging
import threading
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Any, Protocol

from ray.exceptions import RayError
from ray.serve.exceptions import RayServeException

from paceline.config.schema import PeerConfig, Tunables
from paceline.core.generation import GenerationChunk, GenerationRequest
from paceline.core.load import DrafterGroupStatus, TargetLoad
from paceline.core.model_identity import ModelIdentity
from paceline.errors import TargetUnavailableError
from paceline.gateway.place_queue import Lease, PlaceQueue
from paceline.gateway.target_pool import PlaceWish, PoolSnapshot
from paceline.telemetry import catalogue
from paceline.telemetry.metrics import Metrics
from paceline_serve.attempt_hold import AttemptHold, HoldResponse
from paceline_serve.membership import Members, Membership
from paceline_serve.names import TARGET
from paceline_serve.peer_metadata import decode_identity, endpoint_of
from paceline_serve.target_peer import TargetPeer

logger = logging.getLogger(__name__)

_AVOID_S = 5.0  # a replica whose stream broke is not chosen again for this long, if there are others
_NEWS_S = 0.05  # Ray Serve may choose a new replica before this loop has heard of it


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
        max_wait_s: float = Tunables().max_queue_wait_s,
    ) -> None:
        """``max_taken`` limits requests that wait and requests that run, together; ``max_wait_s`` the wait of each."""
        self._hold = hold
        self._peer = peer
        self._metrics = metrics
        self._loop = asyncio.get_running_loop()
        self._peers: dict[str, TargetPeer] = {}  # by replica id
        self._retiring: dict[asyncio.Task[None], TargetPeer] = {}
        self._avoid_until: dict[str, float] = {}  # by replica id
        self._identity: ModelIdentity | None = None
        self._identities: dict[str, ModelIdentity] = {}  # by replica id
        self._is_closed = False
        self._slots: PlaceQueue[Any] = PlaceQueue(
            self._reserve,
            suits=self._suits,
            max_taken=max_taken,
            max_wait_s=max_wait_s,
            is_empty=lambda: not self._peers,
            on_change=self._count,
            on_shed=lambda reason: metrics.count(catalogue.SHED_REQUESTS, reason=reason),
        )
        membership.watch(TARGET, self._on_members)

    @property
    def identity(self) -> ModelIdentity | None:
        """The model; None until the first replica has said."""
        return self._identity

    def apply_tunables(self, tunables: Tunables) -> None:
        """Use new settings for requests that arrive from now on."""
        self._slots.max_wait_s = tunables.max_queue_wait_s

    def snapshot(self) -> PoolSnapshot:
        """The fleet as its newest load reports show it."""
        loads = [load for target in self._peers.values() if (load := target.load) is not None]
        return PoolSnapshot(
            drafter_groups=_merge_groups(loads),
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
        self._is_closed = True
        await self._slots.close()
        retiring = dict(self._retiring)
        for task in retiring:
            task.cancel()
        await asyncio.gather(*retiring, return_exceptions=True)
        await asyncio.gather(*(target.close() for target in (*self._peers.values(), *retiring.values())))

    async def stream_on(
        self, request: GenerationRequest, lease: Lease[Any]
    ) -> AsyncGenerator[Sequence[GenerationChunk], None]:
        """Run an attempt at a place that was taken; see `Place.stream`."""
        replica_id = lease.selection.replica_id
        if replica_id not in self._peers:
            await asyncio.sleep(_NEWS_S)
        target = self._peers.get(replica_id)
        if target is None:
            raise TargetUnavailableError("the replica has just left")
        try:
            hold = AttemptHold(self._dispatch(lease.selection, request.key), target, request.key)
            lease.settle = hold.settle
            async with contextlib.aclosing(target.stream(request)) as batches:
                batch = await hold.first_batch(batches)
                while batch is not None:
                    yield batch
                    batch = await anext(batches, None)
        except TargetUnavailableError:
            self._avoid_until[replica_id] = self._loop.time() + _AVOID_S
            raise

    def identity_of(self, replica_id: str) -> ModelIdentity:
        """What a replica serves. Raises TargetUnavailableError if it has left."""
        identity = self._identities.get(replica_id)
        if identity is None:
            raise TargetUnavailableError("the replica has just left")
        return identity

    def _dispatch(self, selection: Any, key: str) -> HoldResponse:
        try:
            return self._hold.dispatch(selection, key)
        except (RayError, RayServeException) as error:
            raise TargetUnavailableError(type(error).__name__) from error

    def _count(self) -> None:
        self._metrics.set(catalogue.QUEUED_REQUESTS, self._slots.num_waiting)
        self._metrics.set(catalogue.OPEN_STREAMS, self._slots.num_held)

    def _reserve(self, wish: PlaceWish, withdrawn: threading.Event) -> AbstractAsyncContextManager[Any]:
        now = self._loop.time()
        self._avoid_until = {replica: until for replica, until in self._avoid_until.items() if until > now}
        return self._hold.choose_replica(exclude=(*self._avoid_until, *wish.exclude), withdrawn=withdrawn)

    def _suits(self, wish: PlaceWish, selection: Any) -> bool:
        # The router, too, chooses an excluded replica only where there is no other.
        return selection.replica_id not in wish.exclude or not self._peers.keys() - wish.exclude

    def _on_members(self, members: Members) -> None:
        """Any thread: Ray Serve pushed the target group's replicas."""
        with contextlib.suppress(RuntimeError):  # the loop is closed: this gateway is going down
            self._loop.call_soon_threadsafe(self._apply_members, members)

    def _apply_members(self, members: Members) -> None:
        if self._is_closed:
            return
        present = {replica.replica_id: replica for replica in members if "identity" in replica.metadata}
        endpoints = {replica_id: endpoint_of(replica) for replica_id, replica in present.items()}
        # Also one that opened another port under its old id.
        for replica_id in [key for key, target in self._peers.items() if endpoints.get(key) != target.endpoint]:
            self._retire(self._peers.pop(replica_id))
            self._identities.pop(replica_id)
        for replica_id in endpoints.keys() - self._peers.keys():
            self._peers[replica_id] = TargetPeer(endpoints[replica_id], peer=self._peer)
            self._identity = self._identities[replica_id] = decode_identity(present[replica_id].metadata["identity"])
        logger.info("target replicas: %s", ", ".join(sorted(self._peers)) or "none")

    def _retire(self, target: TargetPeer) -> None:
        task = asyncio.create_task(target.retire())
        self._retiring[task] = target
        task.add_done_callback(self._retiring.pop)


class ReplicaPlace:
    """Implements `paceline.gateway.target_pool.Place`."""

    def __init__(self, pool: ServeTargetPool, lease: Lease[Any]) -> None:
        self.replica_id: str = lease.selection.replica_id
        self._pool = pool
        self._lease = lease

    @property
    def identity(self) -> ModelIdentity:
        """What the replica serves. Raises TargetUnavailableError if it has left."""
        return self._pool.identity_of(self.replica_id)

    def stream(self, request: GenerationRequest) -> AsyncGenerator[Sequence[GenerationChunk], None]:
        """Run one attempt here; see `Place.stream`."""
        return self._pool.stream_on(request, self._lease)


def _merge_groups(loads: Sequence[TargetLoad]) -> tuple[DrafterGroupStatus, ...]:
    """Groups as all targets see them together: one that is live for any target is live."""
    merged: dict[str, DrafterGroupStatus] = {}
    for load in loads:
        for group in load.drafter_groups:
            if group.name not in merged or (group.live and not merged[group.name].live):
                merged[group.name] = group
    return tuple(merged.values())
