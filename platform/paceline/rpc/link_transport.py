"""How a target reaches a drafter: gRPC in production, anything with the same shape in tests."""

import asyncio
from collections.abc import Awaitable
from typing import Any, Protocol

import grpc
from grpc import aio

from paceline.config.schema import PeerConfig
from paceline.errors import DrafterUnavailableError, PacelineError
from paceline.rpc.auth import call_metadata
from paceline.rpc.endpoint import Endpoint
from paceline.rpc.options import KEEPALIVE, Keepalive, channel_options
from paceline.rpc.status import error_from_rpc
from paceline.v1 import drafter_pb2, drafter_pb2_grpc


class LinkStream(Protocol):
    """One open stream. Reads and writes may be under way at the same time, one of each."""

    async def write(self, message: drafter_pb2.LinkRequest) -> None:
        """Send; waits while the transport is full. Raises DrafterUnavailableError or LinkRefusedError."""

    async def read(self) -> drafter_pb2.LinkResponse | None:
        """Next message, None once the drafter ended the stream. Raises as `write`."""

    async def close(self) -> None:
        """End the stream; idempotent."""


class LinkTransport(Protocol):
    """Opens streams."""

    async def connect(self, group: str, endpoint: Endpoint) -> LinkStream:
        """Open a stream to one replica of a group; may return before it is known to work."""


class GrpcLinkTransport:
    """Streams over gRPC, each with a channel of its own, so that nothing outlives a dead replica."""

    def __init__(self, peer: PeerConfig, keepalive: Keepalive = KEEPALIVE) -> None:
        self._options = channel_options(peer, keepalive)

    async def connect(self, group: str, endpoint: Endpoint) -> LinkStream:
        """Open a stream to one replica of a group."""
        channel = aio.insecure_channel(endpoint.address, options=self._options)
        stub = drafter_pb2_grpc.DrafterServiceStub(channel)  # type: ignore[no-untyped-call]
        return _GrpcLinkStream(group, channel, stub.Link(metadata=call_metadata(endpoint.token)))


class _GrpcLinkStream:
    def __init__(self, group: str, channel: aio.Channel, call: Any) -> None:
        self._group = group
        self._channel = channel
        self._call = call

    async def write(self, message: drafter_pb2.LinkRequest) -> None:
        await self._settle(self._call.write(message))

    async def read(self) -> drafter_pb2.LinkResponse | None:
        message = await self._settle(self._call.read())
        return None if message is aio.EOF else message  # type: ignore[attr-defined]  # not in the stubs

    async def _settle(self, operation: Awaitable[Any]) -> Any:
        try:
            return await operation
        except aio.AioRpcError as error:
            raise self._as_ours(error) from error
        except (asyncio.InvalidStateError, aio.UsageError) as error:
            raise DrafterUnavailableError(self._group, "the stream has ended") from error

    async def close(self) -> None:
        self._call.cancel()
        await self._channel.close(None)

    def _as_ours(self, error: aio.AioRpcError) -> PacelineError:
        if error.code() is grpc.StatusCode.FAILED_PRECONDITION:
            return error_from_rpc(error)
        return DrafterUnavailableError(self._group, error.details() or error.code().name)
