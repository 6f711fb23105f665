"""A gateway's side of the stream to one target replica."""

from collections.abc import AsyncGenerator

import grpc
from grpc import aio

from paceline.config.schema import PeerConfig
from paceline.core.generation import GenerationRequest
from paceline.rpc.attempt_stream import AttemptStream, Call
from paceline.rpc.auth import call_metadata
from paceline.rpc.call_errors import our_errors
from paceline.rpc.codec_target import LoadReport, decode_report, encode_generation_request
from paceline.rpc.codec_versions import encode_versions
from paceline.rpc.options import KEEPALIVE, Keepalive, channel_options
from paceline.rpc.protocol import spoken
from paceline.v1 import target_pb2, target_pb2_grpc

ABORT_TIMEOUT_S = 2.0  # a replica that is gone or stuck must not hold up whoever gives up on it
_UNDECIDED = (grpc.ChannelConnectivity.IDLE, grpc.ChannelConnectivity.CONNECTING)


class TargetConnection:
    """One channel to one target replica. Build, use and close it on one asyncio loop."""

    def __init__(
        self,
        address: str,
        token: str,
        *,
        peer: PeerConfig,
        keepalive: Keepalive = KEEPALIVE,
        silence_s: float | None = None,
    ) -> None:
        """``silence_s``: see `AttemptStream`."""
        self.address = address
        self._silence_s = silence_s
        self._spoken = spoken(peer.protocol_max)
        self._metadata = call_metadata(token)
        self._channel = aio.insecure_channel(address, options=channel_options(peer, keepalive))
        self._stub = target_pb2_grpc.TargetServiceStub(self._channel)  # type: ignore[no-untyped-call]

    def stream(self, request: GenerationRequest) -> AttemptStream:
        """Stream one attempt; see `AttemptStream`."""

        def start() -> Call:
            call: Call = self._stub.Stream(encode_generation_request(request, self._spoken), metadata=self._metadata)
            return call

        return AttemptStream(start, request, connect=self._connect, silence_s=self._silence_s)

    async def abort(self, key: str) -> None:
        """Abort an attempt; one that is unknown or has ended is fine.

        Raises TargetUnavailableError, also where the replica does not answer in time.
        """
        with our_errors():
            await self._stub.Abort(target_pb2.AbortRequest(key=key), metadata=self._metadata, timeout=ABORT_TIMEOUT_S)

    async def watch_load(self) -> AsyncGenerator[LoadReport, None]:
        """Reports of the replica until the connection breaks (TargetUnavailableError) or the iterator is closed."""
        with our_errors():
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

    async def _connect(self) -> bool:
        """Whether the connection stands, as soon as that is known."""
        while (state := self._channel.get_state(try_to_connect=True)) in _UNDECIDED:
            await self._channel.wait_for_state_change(state)
        return state is grpc.ChannelConnectivity.READY
