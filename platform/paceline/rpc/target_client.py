"""A gateway's side of the stream to one target replica."""

import asyncio
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import contextmanager

from grpc import aio

from paceline.config.schema import PeerConfig
from paceline.core.generation import GenerationChunk, GenerationRequest
from paceline.errors import TargetUnavailableError, UnauthenticatedError
from paceline.rpc.auth import call_metadata
from paceline.rpc.chunk_continuity import ChunkContinuity
from paceline.rpc.codec_target import (
    LoadReport,
    decode_chunks,
    decode_report,
    encode_generation_request,
)
from paceline.rpc.codec_versions import encode_versions
from paceline.rpc.options import KEEPALIVE, Keepalive, channel_options
from paceline.rpc.protocol import spoken
from paceline.rpc.status import cancelled_from_within, error_from_rpc
from paceline.v1 import target_pb2, target_pb2_grpc

ABORT_TIMEOUT_S = 2.0  # a replica that is gone or stuck must not hold up whoever gives up on it
_CLOSED = "the connection was closed"


class TargetConnection:
    """One channel to one target replica. Build, use and close it on one asyncio loop."""

    def __init__(self, address: str, token: str, *, peer: PeerConfig, keepalive: Keepalive = KEEPALIVE) -> None:
        self.address = address
        self._spoken = spoken(peer.protocol_max)
        self._metadata = call_metadata(token)
        self._channel = aio.insecure_channel(address, options=channel_options(peer, keepalive))
        self._stub = target_pb2_grpc.TargetServiceStub(self._channel)  # type: ignore[no-untyped-call]

    async def stream(self, request: GenerationRequest) -> AsyncIterator[Sequence[GenerationChunk]]:
        """Stream one attempt, in batches of chunks that are new and without gaps.

        Closing the iterator ends the call, which aborts the attempt. Raises the target's own error
        before or between batches, StreamGapError where tokens are missing, TargetUnavailableError
        where the connection broke or the stream ended early.
        """
        continuity = ChunkContinuity(request.num_choices, request.resumed)
        with _our_errors():
            call = self._stub.Stream(encode_generation_request(request, self._spoken), metadata=self._metadata)
            try:
                async for message in call:
                    fresh = continuity.admit(decode_chunks(request.key, message))
                    if fresh:
                        yield fresh
                continuity.check_complete()
            finally:
                call.cancel()

    async def abort(self, key: str) -> None:
        """Abort an attempt; one that is unknown or has ended is fine.

        Raises TargetUnavailableError, also where the replica does not answer in time.
        """
        with _our_errors():
            await self._stub.Abort(target_pb2.AbortRequest(key=key), metadata=self._metadata, timeout=ABORT_TIMEOUT_S)

    async def watch_load(self) -> AsyncIterator[LoadReport]:
        """Reports of the replica until the connection breaks (TargetUnavailableError) or the iterator is closed."""
        with _our_errors():
            request = target_pb2.WatchLoadRequest(protocol=encode_versions(self._spoken))
            call = self._stub.WatchLoad(request, metadata=self._metadata)
            try:
                async for message in call:
                    yield decode_report(message)
            finally:
                call.cancel()

    async def close(self) -> None:
        """End all calls and close the channel."""
        await self._channel.close(None)


@contextmanager
def _our_errors() -> Iterator[None]:
    """Whatever gRPC raises in the block, as the error that it stands for."""
    try:
        yield
    except aio.AioRpcError as error:
        ours = error_from_rpc(error)
        # The gateway's token is stale because the replica restarted: no fault of the gateway's own client.
        if isinstance(ours, UnauthenticatedError):
            ours = TargetUnavailableError("the replica does not know the gateway's token")
        raise ours from error
    except aio.UsageError as error:
        raise TargetUnavailableError(_CLOSED) from error
    except asyncio.CancelledError:
        if cancelled_from_within():
            raise TargetUnavailableError(_CLOSED) from None
        raise
