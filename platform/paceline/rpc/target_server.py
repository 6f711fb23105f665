"""A target replica's side of the stream to gateways."""

import asyncio
import time
from typing import Any

from grpc.aio import Server, ServicerContext

from paceline.engine.backend import EngineBackend
from paceline.rpc.codec_target import (
    LoadReport,
    check_protocol,
    decode_generation_request,
    encode_chunks,
    encode_report,
)
from paceline.rpc.holds import HoldRegistry
from paceline.v1 import target_pb2, target_pb2_grpc

REPORT_EVERY_S = 1.0
REPORT_AT_MOST_EVERY_S = 0.1


class TargetServicer(target_pb2_grpc.TargetServiceServicer):
    """Streams, aborts and reports for one engine.

    Handlers write through their context instead of yielding: a cancelled call then raises inside the
    handler at once, and the engine hears of it before its next step.
    """

    def __init__(self, backend: EngineBackend, holds: HoldRegistry) -> None:
        self._backend = backend
        self._holds = holds

    def add_to(self, server: Server) -> None:
        """Register the service."""
        target_pb2_grpc.add_TargetServiceServicer_to_server(self, server)  # type: ignore[no-untyped-call]

    async def Stream(  # noqa: N802  # name from the proto
        self, request: target_pb2.StreamRequest, context: ServicerContext[Any, Any]
    ) -> None:
        """Stream one attempt. What the engine refuses becomes the call's status, before any chunk."""
        check_protocol(request.protocol)
        generation = decode_generation_request(request)
        self._holds.opened(generation.key)
        try:
            batches = self._backend.generate(generation)
            try:
                async for chunks in batches:
                    await context.write(encode_chunks(chunks))
            finally:
                await self._end(batches, generation.key)
        finally:
            self._holds.closed(generation.key)

    async def _end(self, batches: object, key: str) -> None:
        # Shielded: a second cancellation must not leave the engine with an orphan.
        close = getattr(batches, "aclose", None)
        if close is not None:
            await asyncio.shield(close())
        await asyncio.shield(self._backend.abort(key))

    async def Abort(  # noqa: N802  # name from the proto
        self, request: target_pb2.AbortRequest, context: ServicerContext[Any, Any]
    ) -> target_pb2.AbortResponse:
        """Abort one attempt; unknown and ended ones are fine."""
        del context
        await self._backend.abort(request.key)
        return target_pb2.AbortResponse()

    async def WatchLoad(  # noqa: N802  # name from the proto
        self, request: target_pb2.WatchLoadRequest, context: ServicerContext[Any, Any]
    ) -> None:
        """Report at once, then on change (at most ten times a second) and once a second."""
        check_protocol(request.protocol)
        last: LoadReport | None = None
        reported_at = 0.0
        while True:
            report = self._report()
            now = time.monotonic()
            if report != last or now - reported_at >= REPORT_EVERY_S:
                await context.write(encode_report(report))
                last, reported_at = report, now
            await asyncio.sleep(REPORT_AT_MOST_EVERY_S)

    def _report(self) -> LoadReport:
        return LoadReport(self._backend.snapshot(), self._holds.num_held, self._backend.identity.system_fingerprint)
