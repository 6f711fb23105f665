import asyncio

import grpc
import pytest
from ray.serve._private.grpc_util import gRPCGenericServer
from ray.serve._private.proxy_request_response import gRPCStreamingType

from paceline.v1 import generation_pb2_grpc
from paceline_serve.grpc_door import add_generation_service, relay_promptly

_METHOD = "/paceline.v1.GenerationService/Generate"


class Context:
    """A call whose client takes no message, until it is told to."""

    def __init__(self, *, reads: bool) -> None:
        self.reads = asyncio.Event()
        self.written = []
        if reads:
            self.reads.set()

    async def write(self, message: bytes) -> None:
        await self.reads.wait()
        self.written.append(message)


async def test_messages_arrive_in_order_and_the_end_is_passed_on():
    """The relay changes nothing for a client that stays."""

    async def handler(request, context):
        for message in (b"1", b"2", request):
            await asyncio.sleep(0)
            yield message

    context = Context(reads=True)
    await relay_promptly(handler)(b"3", context)

    assert context.written == [b"1", b"2", b"3"]


async def test_a_cancel_during_a_write_reaches_the_handler():
    """The handler is cancelled where it waits for its next message, and has cleaned up when the call ends."""
    seen = []

    async def handler(request, context):
        yield b"1"
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            await asyncio.sleep(0.01)
            seen.append("cancelled")
            raise
        yield b"2"

    call = asyncio.create_task(relay_promptly(handler)(b"", Context(reads=False)))
    await asyncio.sleep(0.02)
    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await call

    assert seen == ["cancelled"]


async def test_a_handlers_error_is_the_calls_error():
    """What the handler raises after some messages is raised after those messages."""

    async def handler(request, context):
        yield b"1"
        raise ValueError("seven")

    context = Context(reads=True)
    with pytest.raises(ValueError, match="seven"):
        await relay_promptly(handler)(b"", context)

    assert context.written == [b"1"]


async def test_ray_serves_own_server_gets_the_relay():
    """Registered on the proxy's server class, a stream is answered by the relay around Ray Serve's handler."""
    made = []

    def factory(*, service_method, streaming_type):
        async def handler(request, context):
            yield b"from ray serve"

        made.append((service_method, streaming_type))
        return handler

    server = gRPCGenericServer(factory)
    add_generation_service(generation_pb2_grpc.GenerationServiceServicer(), server)
    (handlers,) = server.generic_rpc_handlers[0]
    handler = handlers._method_handlers[_METHOD]
    context = Context(reads=True)
    await handler.unary_stream(b"", context)

    assert context.written == [b"from ray serve"]
    assert (_METHOD, gRPCStreamingType.UNARY_STREAM) in made
    assert server.service_handler_factory is factory


async def test_a_cancel_from_inside_ray_serve_is_an_error_of_the_call():
    """A client that did not cancel is told that the answer was cut off, and may try again."""

    class AbortedError(Exception):
        pass

    class Aborting(Context):
        async def abort(self, code, details, trailers):
            raise AbortedError(code, details)

    async def handler(request, context):
        yield b"1"
        raise asyncio.CancelledError

    context = Aborting(reads=True)
    with pytest.raises(AbortedError) as caught:
        await relay_promptly(handler)(b"", context)

    code, details = caught.value.args
    assert code is grpc.StatusCode.UNAVAILABLE
    assert "cut off" in details
    assert context.written == [b"1"]
