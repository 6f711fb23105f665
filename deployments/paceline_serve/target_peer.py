"""One target replica as a gateway sees it: its connection, its load, what runs there."""

import asyncio
import contextlib
import logging
import random
from collections.abc import AsyncGenerator, Sequence

from paceline.config.schema import PeerConfig
from paceline.core.generation import GenerationChunk, GenerationRequest
from paceline.core.load import TargetLoad
from paceline.errors import PacelineError
from paceline.rpc.endpoint import Endpoint
from paceline.rpc.target_client import TargetConnection
from paceline_serve.iterators import close_iterator

logger = logging.getLogger(__name__)

_REPORT_VALID_S = 3.0  # replicas report at least once a second
_RETRY_S = 0.5


class TargetPeer:
    """Built, used and closed on the gateway's asyncio loop."""

    def __init__(self, endpoint: Endpoint, *, peer: PeerConfig) -> None:
        self.endpoint = endpoint
        self._connection = TargetConnection(endpoint.address, endpoint.token, peer=peer)
        self._loop = asyncio.get_running_loop()
        self._load: TargetLoad | None = None
        self._reported_at = 0.0
        self._num_streams = 0
        self._idle = asyncio.Event()
        self._idle.set()
        self._watching = asyncio.create_task(self._watch())

    @property
    def load(self) -> TargetLoad | None:
        """Newest report; None before the first one and once it is too old to mean anything."""
        expired = self._loop.time() - self._reported_at > _REPORT_VALID_S
        return None if expired else self._load

    async def stream(self, request: GenerationRequest) -> AsyncGenerator[Sequence[GenerationChunk], None]:
        """Stream one attempt on this replica; see `TargetConnection.stream`."""
        self._num_streams += 1
        self._idle.clear()
        batches = self._connection.stream(request)
        try:
            async for batch in batches:
                yield batch
        finally:
            await close_iterator(batches)
            self._num_streams -= 1
            if not self._num_streams:
                self._idle.set()

    async def abort(self, key: str) -> None:
        """Make sure that an attempt is not running; a replica that is gone runs nothing."""
        with contextlib.suppress(PacelineError):
            await self._connection.abort(key)

    async def retire(self) -> None:
        """Close the connection once the streams on it have ended: a replica that drains finishes them."""
        self._watching.cancel()
        await self._idle.wait()
        await self._connection.close()

    async def close(self) -> None:
        """Close the connection now."""
        self._watching.cancel()
        await self._connection.close()

    async def _watch(self) -> None:
        while True:
            try:
                async for report in self._connection.watch_load():
                    self._load = report.load
                    self._reported_at = self._loop.time()
            except PacelineError as error:
                logger.info("load of target %s is unknown: %s", self.endpoint.replica_id, error)
            except Exception:  # the task's border: without reports the replica would count as not ready for good
                logger.exception("watching target %s failed", self.endpoint.replica_id)
            await asyncio.sleep(_RETRY_S * (0.5 + random.random()))
