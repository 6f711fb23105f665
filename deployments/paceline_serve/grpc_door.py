"""Registers the public gRPC service with Ray Serve's proxy, so that a client's cancel always reaches the gateway.

The proxy answers a stream from nested asynchronous generators. A cancel that finds it waiting for the next
message is passed on; one that finds it writing a message is lost, because a generator that is suspended at
``yield`` hears of nothing, and the answer would be generated to its end for nobody. Runs in proxy processes.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

from paceline.errors import TargetUnavailableError
from paceline.rpc.status import abort_with
from paceline.v1 import generation_pb2_grpc

Handler = Callable[[Any, Any], AsyncIterator[bytes]]
Relay = Callable[[Any, Any], Awaitable[None]]

_END = object()


def add_generation_service(servicer: Any, server: Any) -> None:
    """Register GenerationService; named in the deployment's ``grpc_servicer_functions``."""
    make_handler = server.service_handler_factory
    server.service_handler_factory = lambda **kind: _wrap(make_handler(**kind), kind["streaming_type"].name)
    try:
        generation_pb2_grpc.add_GenerationServiceServicer_to_server(servicer, server)  # type: ignore[no-untyped-call]
    finally:
        server.service_handler_factory = make_handler


def _wrap(handler: Handler, kind: str) -> Handler | Relay:
    return relay_promptly(handler) if kind == "UNARY_STREAM" else handler


def relay_promptly(handler: Handler) -> Relay:
    """The same handler, drained by a task that never waits for the client and ends before the call does.

    What the client has not taken yet waits in memory; an answer is bounded by its ``max_tokens``.
    """

    async def relay(request: Any, context: Any) -> None:
        messages: asyncio.Queue[Any] = asyncio.Queue()
        draining = asyncio.create_task(_drain(handler(request, context), messages))
        try:
            while (message := await messages.get()) is not _END:
                await context.write(message)
        finally:
            draining.cancel()
            # Ray Serve looks at the context while it cleans up, which crashes the process once the call is gone.
            await asyncio.wait([draining])
        if draining.cancelled():  # from within: a cancel of the call itself has been raised above
            await abort_with(context, TargetUnavailableError("the answer was cut off inside the server"))
        draining.result()  # raises what the handler raised

    return relay


async def _drain(stream: AsyncIterator[bytes], messages: "asyncio.Queue[Any]") -> None:
    try:
        async for message in stream:
            messages.put_nowait(message)
    finally:
        messages.put_nowait(_END)
