"""The target replicas that a gateway may use: who they are, how loaded, which had better not be chosen."""

import asyncio
import contextlib
import logging
import random
from collections.abc import Callable
from contextlib import AbstractContextManager

from paceline.config.schema import PeerConfig
from paceline.core.load import TargetLoad
from paceline.core.model_identity import ModelIdentity
from paceline.gateway.target_pool import PlaceWish
from paceline.routing.target_choice import Asking, TargetChoice
from paceline.routing.target_load import TargetReport
from paceline.rpc.codec_target import LoadReport
from paceline.rpc.endpoint import Endpoint
from paceline_serve.departure import move_streams
from paceline_serve.membership import Members, Membership, ReplicaInfo
from paceline_serve.names import TARGET
from paceline_serve.peer_metadata import endpoint_of
from paceline_serve.target_peer import TargetPeer

logger = logging.getLogger(__name__)


class TargetFleet:
    """Follows Ray Serve's list of replicas and their load reports. Used from one asyncio loop."""

    def __init__(
        self,
        membership: Membership,
        *,
        peer: PeerConfig,
        serves: Callable[[ModelIdentity], bool],
        migrate_after_s: float,
    ) -> None:
        """``serves``: whether a replica's model is this gateway's own, whose tokenizer and limits it knows."""
        self._membership = membership
        self._peer = peer
        self._serves = serves
        self._migrate_after_s = migrate_after_s
        self._loop = asyncio.get_running_loop()
        self._choice = TargetChoice(clock=self._loop.time, rng=random.Random())
        self._peers: dict[str, TargetPeer] = {}  # by replica id, oldest first
        self._departing: dict[TargetPeer, asyncio.Task[None]] = {}
        self._closing: set[asyncio.Task[None]] = set()
        self._identity: ModelIdentity | None = None
        self._is_closed = False
        membership.watch(TARGET, self._on_members)

    @property
    def identity(self) -> ModelIdentity | None:
        """The gateway's own model, as the longest there of its replicas says; None before the first one has said."""
        return self._identity

    @property
    def is_empty(self) -> bool:
        """Whether no replica would take a new request."""
        return not any(self._fits(target) for target in self._peers.values())

    def loads(self) -> list[TargetLoad]:
        """Fresh reports of the replicas that would take a new request."""
        return [load for target in self._peers.values() if self._fits(target) and (load := target.load) is not None]

    def find(self, replica_id: str) -> TargetPeer | None:
        """A replica that has not left. Ray Serve may choose a new one before its push has reached this loop."""
        if replica_id not in self._peers:
            self._apply_members()
        return self._peers.get(replica_id)

    def suits(self, wish: PlaceWish, replica_id: str) -> bool:
        """Whether a place on this replica is any good for the request."""
        target = self.find(replica_id)
        return target is not None and replica_id not in wish.exclude and self._fits(target, wish.fingerprint)

    def excluded(self, wish: PlaceWish) -> frozenset[str]:
        """Where the request must not go at this moment. Any thread.

        A replica that has just failed, or that nothing is heard of, is left out as long as there are better ones.
        """
        listed = list(self._peers.values())
        usable = {
            target
            for target in listed
            if target.replica_id not in wish.exclude and self._fits(target, wish.fingerprint)
        }
        failed = self._choice.failed_lately()
        sound = {target for target in usable if target.replica_id not in failed and target.load is not None}
        chosen = {target.replica_id for target in sound or usable}
        return wish.exclude.union(target.replica_id for target in listed) - chosen

    def preferred(self, wish: PlaceWish) -> str | None:
        """Where the request had better go; None: anywhere."""
        return self._choice.prefer(self._peers.keys() - self.excluded(wish))

    def asking(self, preferred: str | None) -> AbstractContextManager[Asking]:
        """Count a request, for the length of the block; see `TargetChoice.asking`."""
        return self._choice.asking(preferred)

    def failed(self, replica_id: str) -> None:
        """An attempt there broke: others are chosen for a while, if there are any."""
        self._choice.failed(replica_id)

    async def close(self) -> None:
        """Close every connection; news that comes later opens none."""
        self._is_closed = True
        targets = [*self._peers.values(), *self._departing]
        self._peers.clear()
        for task in self._departing.values():
            task.cancel()
        await asyncio.gather(*self._departing.values(), *self._closing, return_exceptions=True)
        await asyncio.gather(*(target.close() for target in targets))

    def _fits(self, target: TargetPeer, fingerprint: str | None = None) -> bool:
        """Whether new attempts may go there; with a fingerprint, those that resume what had it."""
        return (
            not target.is_leaving
            and target.speaks_our_protocol
            and self._serves(target.identity)
            and fingerprint in (None, target.identity.system_fingerprint)
        )

    def _has_other(self, target: TargetPeer) -> bool:
        """Whether another replica can go on with what runs on this one."""
        return any(
            other is not target and other.load is not None and self._fits(other, target.identity.system_fingerprint)
            for other in self._peers.values()
        )

    def _on_members(self, _members: Members) -> None:
        """Any thread: Ray Serve pushed the target group's replicas."""
        with contextlib.suppress(RuntimeError):  # the loop is closed: this gateway is going down
            self._loop.call_soon_threadsafe(self._apply_members)

    def _apply_members(self) -> None:
        if self._is_closed:
            return
        # Not what was pushed: a newer list may have been read since.
        listed = [replica for replica in self._membership.replicas(TARGET) if "identity" in replica.metadata]
        endpoints = {replica.replica_id: endpoint_of(replica) for replica in listed}
        before = set(self._peers.values())
        # Also one that opened another port under its old id.
        for target in [peer for peer in before if endpoints.get(peer.replica_id) != peer.endpoint]:
            self._leave(target)
        for replica in listed:
            if replica.replica_id not in self._peers:
                self._join(replica)
        if before != set(self._peers.values()):
            logger.info("target replicas: %s", ", ".join(sorted(self._peers)) or "none")
        own = (target.identity for target in self._peers.values() if self._fits(target))
        self._identity = next(own, self._identity)

    def _join(self, replica: ReplicaInfo) -> None:
        target = self._returned(endpoint_of(replica))
        if target is None:
            target = TargetPeer(replica, peer=self._peer, on_report=self._on_report)
            if not target.speaks_our_protocol:
                logger.warning(
                    "target %s speaks no version of the peer protocol that is spoken here", replica.replica_id
                )
            elif not self._serves(target.identity):
                logger.info("target %s serves another model: %s", replica.replica_id, target.identity.name)
        self._peers[replica.replica_id] = target
        self._choice.join(replica.replica_id)

    def _returned(self, endpoint: Endpoint) -> TargetPeer | None:
        """The replica here, if its last streams still run: a controller that restarts lists nobody at first."""
        for target in self._departing:
            if target.has_left and target.endpoint == endpoint:
                self._departing.pop(target).cancel()
                target.come_back()
                return target
        return None

    def _leave(self, target: TargetPeer) -> None:
        del self._peers[target.replica_id]
        self._choice.leave(target.replica_id)
        target.leave()
        self._start_departure(target)

    def _on_report(self, target: TargetPeer, report: LoadReport) -> None:
        if target.is_leaving:
            self._start_departure(target)
        if self._peers.get(target.replica_id) is not target:
            return
        load = report.load
        busy = max(load.running + load.waiting, report.num_held)
        facts = TargetReport(busy, report.uptime_s, draining=report.draining, stalled_s=report.stalled_s)
        self._choice.reported(target.replica_id, facts)

    def _start_departure(self, target: TargetPeer) -> None:
        if target not in self._departing and (target.has_left or target.num_staying):
            self._departing[target] = asyncio.create_task(self._depart(target))

    async def _depart(self, target: TargetPeer) -> None:
        """Move what runs on a replica that is about to go; close the connection once it has left."""
        try:
            async with asyncio.timeout(self._migrate_after_s - target.leaving_for_s):
                await target.until_idle()
        except TimeoutError:
            await move_streams(target, has_other=lambda: self._has_other(target))
        if target.has_left:
            await target.until_idle()
        task = self._departing.pop(target)  # from here on it does not come back
        if target.has_left:
            self._closing.add(task)
            task.add_done_callback(self._closing.discard)
            await target.close()
