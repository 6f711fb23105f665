"""One target replica as a gateway sees it: its connection, its load, what runs there, whether it is about to go."""

import asyncio
import contextlib
import logging
import random
from collections.abc import AsyncGenerator, Callable, Sequence

from paceline.config.schema import PeerConfig
from paceline.core.generation import GenerationChunk, GenerationRequest
from paceline.core.load import TargetLoad
from paceline.errors import PacelineError, TargetLeavingError
from paceline.routing.target_load import REPORT_VALID_S
from paceline.rpc.attempt_stream import AttemptStream
from paceline.rpc.codec_target import LoadReport
from paceline.rpc.protocol import SIGNS_OF_LIFE, spoken
from paceline.rpc.target_client import TargetConnection
from paceline_serve.membership import ReplicaInfo
from paceline_serve.peer_metadata import decode_identity, endpoint_of, versions_of

logger = logging.getLogger(__name__)

PROGRESS_TIMEOUT_S = 10.0
"""A replica that sends nothing for this long, not even a sign of life, has lost its streams."""

_REPORT_LATE_S = 5.0  # replicas report at least once a second
_RETRY_S = 0.5


class TargetPeer:
    """Built, used and closed on the gateway's asyncio loop."""

    def __init__(
        self, replica: ReplicaInfo, *, peer: PeerConfig, on_report: Callable[["TargetPeer", LoadReport], None]
    ) -> None:
        """``on_report`` hears of every load report."""
        self.replica_id = replica.replica_id
        self.endpoint = endpoint_of(replica)
        self.identity = decode_identity(replica.metadata["identity"])
        version = spoken(peer.protocol_max).shared_with(versions_of(replica))
        self.speaks_our_protocol = version is not None
        self.has_left = False  # Ray Serve's list of replicas; `leave` and `come_back` say so
        self._connection = TargetConnection(
            self.endpoint.address,
            self.endpoint.token,
            peer=peer,
            silence_s=PROGRESS_TIMEOUT_S if version is not None and version >= SIGNS_OF_LIFE else None,
        )
        self._on_report = on_report
        self._loop = asyncio.get_running_loop()
        self._load: TargetLoad | None = None
        self._reported_at = 0.0
        self._leaving_since: float | None = None
        self._streams: set[AttemptStream] = set()
        self._idle = asyncio.Event()
        self._idle.set()
        self._watching = asyncio.create_task(self._watch())

    @property
    def load(self) -> TargetLoad | None:
        """Newest report; None before the first one and once it is too old to mean anything."""
        expired = self._loop.time() - self._reported_at > REPORT_VALID_S
        return None if expired else self._load

    @property
    def is_leaving(self) -> bool:
        """Whether the replica has left, or takes nothing new because it will."""
        return self._leaving_since is not None

    @property
    def leaving_for_s(self) -> float:
        """Time since that is known; 0 for a replica that stays."""
        return 0.0 if self._leaving_since is None else self._loop.time() - self._leaving_since

    @property
    def num_staying(self) -> int:
        """Streams here that have not been told to move."""
        return sum(not stream.is_ended for stream in self._streams)

    async def stream(self, request: GenerationRequest) -> AsyncGenerator[Sequence[GenerationChunk], None]:
        """Stream one attempt on this replica; see `AttemptStream`."""
        batches = self._connection.stream(request)
        self._streams.add(batches)
        self._idle.clear()
        try:
            async with contextlib.aclosing(batches):
                async for batch in batches:
                    yield batch
        finally:
            self._streams.discard(batches)
            if not self._streams:
                self._idle.set()

    def move_one(self) -> None:
        """End one of the streams with TargetLeavingError, so that its answer goes on elsewhere."""
        staying = next((stream for stream in self._streams if not stream.is_ended), None)
        if staying is not None:
            staying.end(TargetLeavingError(f"replica {self.replica_id} is about to go"))

    async def abort(self, key: str) -> None:
        """Make sure that an attempt is not running; a replica that is gone runs nothing."""
        with contextlib.suppress(PacelineError):
            await self._connection.abort(key)

    def leave(self) -> None:
        """Ray Serve no longer lists the replica: it finishes what it has, or is dead."""
        self.has_left = True
        self._leaving_since = self._leaving_since or self._loop.time()

    def come_back(self) -> None:
        """Ray Serve lists the replica again. If it drains, its next report says so."""
        self.has_left = False
        self._leaving_since = None

    async def until_idle(self) -> None:
        """Wait until no stream is left."""
        await self._idle.wait()

    async def close(self) -> None:
        """Close the connection now."""
        self._watching.cancel()
        await self._connection.close()

    async def _watch(self) -> None:
        while True:
            try:
                async with contextlib.aclosing(self._connection.watch_load()) as reports:
                    while True:
                        async with asyncio.timeout(_REPORT_LATE_S):
                            self._take_in(await anext(reports))
            except (PacelineError, TimeoutError, StopAsyncIteration) as error:
                logger.info("load of target %s is unknown: %r", self.replica_id, error)
            except Exception:  # the task's border: without reports the replica would count as not ready for good
                logger.exception("watching target %s failed", self.replica_id)
            await asyncio.sleep(_RETRY_S * (0.5 + random.random()))

    def _take_in(self, report: LoadReport) -> None:
        self._load = report.load
        self._reported_at = self._loop.time()
        if report.draining and self._leaving_since is None:
            self._leaving_since = self._loop.time()
        self._on_report(self, report)
