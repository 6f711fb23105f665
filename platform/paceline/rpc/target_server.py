"""A target replica's side of the stream to gateways."""

import asyncio
import functools
import time
from typing import Any

from grpc.aio import Server, ServicerContext

from paceline.engine.backend import EngineBackend
from paceline.errors import TargetUnavailableError
from paceline.rpc.attempt_watch import SIGN_OF_LIFE_S, AttemptWatch
from paceline.rpc.codec_target import LoadReport, agree, decode_generation_request, encode_chunks, encode_report
from paceline.rpc.holds import HoldRegistry
from paceline.rpc.protocol import OURS, SIGNS_OF_LIFE, Versions
from paceline.v1 import target_pb2, target_pb2_grpc

REPORT_EVERY_S = 1.0
REPORT_AT_MOST_EVERY_S = 0.1


class TargetServicer(target_pb2_grpc.TargetServiceServicer):
    """Streams, aborts and reports for one engine.

    Handlers write through their context instead of yielding: a cancelled call then raises inside the
    handler at once, and the engine hears of it before its next step.
    """

    def __init__(
        self,
        backend: EngineBackend,
        holds: HoldRegistry,
        *,
        versions: Versions = OURS,
        sign_of_life_s: float = SIGN_OF_LIFE_S,
    ) -> None:
        """``versions`` are those that the replica speaks."""
        self._backend = backend
        self._holds = holds
        self._versions = versions
        self._sign_of_life_s = sign_of_life_s
        self._started = time.monotonic()

    def add_to(self, server: Server) -> None:
        """Register the service."""
        target_pb2_grpc.add_TargetServiceServicer_to_server(self, server)  # type: ignore[no-untyped-call]

    async def Stream(  # noqa: N802  # name from the proto
        self, request: target_pb2.StreamRequest, context: ServicerContext[Any, Any]
    ) -> None:
        """Stream one attempt. What the engine refuses becomes the call's status, before any chunk.

        The stream lasts no longer than its deadline, than the engine is healthy, and, if no hold comes for it,
        than `HoldRegistry.open_within_s` without a token.
        """
        version = agree(request.protocol, self._versions)
        generation = decode_generation_request(request)
        key = generation.key
        self._holds.opened(key)
        try:
            watch = AttemptWatch(context.write, signs=version >= SIGNS_OF_LIFE, every_s=self._sign_of_life_s)
            deadline_s = request.deadline_ms / 1e3 if request.deadline_ms else None
            async with watch.running(functools.partial(self._check_attempt, key, watch), deadline_s):
                batches = self._backend.generate(generation)
                try:
                    async for chunks in batches:
                        await watch.write(encode_chunks(chunks))
                finally:
                    await self._end(batches, key)
        finally:
            self._holds.closed(key)

    def _check_attempt(self, key: str, watch: AttemptWatch) -> None:
        """Raise what an attempt must end with though neither its gateway nor the engine ends it."""
        self._backend.check_health()
        # Nothing holds its place then. Once there are tokens, ending it for that would cost more than it mends.
        if not watch.num_messages and watch.age_s > self._holds.open_within_s and not self._holds.was_held(key):
            raise TargetUnavailableError(f"no hold came for attempt {key}")

    async def _end(self, batches: object, key: str) -> None:
        # Shielded: a second cancellation must not leave the engine with an orphan.
        close = getattr(batches, "aclose", None)
        if close is not None:
            await asyncio.shield(close())
        await asyncio.shield(self._backend.abort(key))

    async def Abort(  # noqa: N802  # name from the proto
        self, request: target_pb2.AbortRequest, context: ServicerContext[Any, Any]
    ) -> target_pb2.AbortResponse:
        """Abort one attempt; unknown and ended ones are fine. A stream of it that comes later is refused."""
        del context
        self._holds.aborted(request.key)
        await self._backend.abort(request.key)
        return target_pb2.AbortResponse()

    async def WatchLoad(  # noqa: N802  # name from the proto
        self, request: target_pb2.WatchLoadRequest, context: ServicerContext[Any, Any]
    ) -> None:
        """Report at once, then on change (at most ten times a second) and once a second."""
        agree(request.protocol, self._versions)
        last: LoadReport | None = None
        reported_at = 0.0
        while True:
            report = self._report()
            now = time.monotonic()
            if report != last or now - reported_at >= REPORT_EVERY_S:
                await context.write(encode_report(self._at_this_moment(report)))
                last, reported_at = report, now
            await asyncio.sleep(REPORT_AT_MOST_EVERY_S)

    def report(self) -> LoadReport:
        """The load at this moment."""
        return self._at_this_moment(self._report())

    def _report(self) -> LoadReport:
        """What is news when it changes."""
        return LoadReport(
            self._backend.snapshot(),
            self._holds.num_held,
            self._backend.identity.system_fingerprint,
            draining=self._holds.draining,
        )

    def _at_this_moment(self, report: LoadReport) -> LoadReport:
        return report._replace(uptime_s=time.monotonic() - self._started, stalled_s=self._backend.stalled_s)
