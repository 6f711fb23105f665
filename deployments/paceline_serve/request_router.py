"""How Ray Serve picks a replica for a handle, and where it tells us who the replicas are."""

import asyncio
import random
from typing import Any

from ray.exceptions import ActorUnavailableError
from ray.serve.request_router import PendingRequest, ReplicaID, RequestRouter, RunningReplica

from paceline_serve import membership

_RESERVED_WITHIN_S = 2.0


class PeerRouter(RequestRouter):
    """Picks the least loaded replica within the caller's wishes; records membership.

    Hints are keyword arguments of ``choose_replica``. ``prefer``, a collection of replica ids, yields to load.
    ``exclude`` returns one: it is asked at every try, on the router's thread, since a request may wait here for long;
    it yields only where it would leave nobody. ``withdrawn`` is an event that the caller sets when it wants no place
    any more: cancelling the call itself would leave it in the queue.
    """

    def create_replica_wrapper(self, replica_info: Any) -> RunningReplica:
        """What Ray Serve uses to talk to a replica."""
        return PromptReplica(replica_info)

    def update_replicas(self, replicas: list[RunningReplica]) -> None:
        """Ray Serve's push of all running replicas."""
        super().update_replicas(replicas)
        self._record()

    def on_replica_actor_died(self, replica_id: ReplicaID) -> None:
        """A call found the replica's process dead, before Ray Serve noticed."""
        super().on_replica_actor_died(replica_id)
        self._record()

    async def choose_replicas(
        self, candidate_replicas: list[RunningReplica], pending_request: PendingRequest | None = None
    ) -> list[list[RunningReplica]]:
        """Ranks of replicas; Ray Serve takes the one with the fewest requests of the first rank with room."""
        hints = pending_request.kwargs if pending_request else {}
        if pending_request is not None and "withdrawn" in hints and hints["withdrawn"].is_set():
            pending_request.future.cancel()
        exclude, prefer = hints.get("exclude", tuple)(), hints.get("prefer", ())
        usable = [replica for replica in candidate_replicas if replica.replica_id.unique_id not in exclude]
        usable = usable or list(candidate_replicas)
        random.shuffle(usable)  # ties go to a random replica
        preferred = [replica for replica in usable if replica.replica_id.unique_id in prefer]
        return [preferred, usable]

    def _record(self) -> None:
        replicas = [
            membership.ReplicaInfo(replica_id.unique_id, replica.replica_metadata or {})
            for replica_id, replica in self.curr_replicas.items()
        ]
        membership.MEMBERSHIP.record(self._deployment_id.name, replicas)


class PromptReplica(RunningReplica):
    """A replica that answers in time or is passed over.

    Ray Serve itself would wait for one that stands still until that is declared dead, and the reservation with it.
    """

    async def reserve_slot(self, request_metadata: Any) -> Any:
        """Reserve a place. Raises ActorUnavailableError, upon which another replica is tried."""
        try:
            async with asyncio.timeout(_RESERVED_WITHIN_S):
                return await super().reserve_slot(request_metadata)
        except TimeoutError as error:
            raise ActorUnavailableError(f"no place within {_RESERVED_WITHIN_S:g} s", None) from error
