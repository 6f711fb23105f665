import asyncio
import contextlib
import socket

import grpc
import pytest
from grpc import aio
from grpc_health.v1 import health_pb2, health_pb2_grpc

from paceline.config.schema import PeerConfig
from paceline.errors import ConfigError
from paceline.rpc.auth import call_metadata, new_token
from paceline.rpc.options import Keepalive, channel_options, server_options
from paceline.rpc.peer_server import PeerServer
from peers import LOOPBACK, PEER, TOKEN, serving


async def check_health(address: str, token: str) -> int:
    async with aio.insecure_channel(address, options=channel_options(PEER)) as channel:
        stub = health_pb2_grpc.HealthStub(channel)
        return (await stub.Check(health_pb2.HealthCheckRequest(), metadata=call_metadata(token))).status


async def test_health_answers_behind_the_token():
    """A started server says SERVING to whoever has the token."""
    async with serving() as server:
        assert await check_health(server.address, TOKEN) == health_pb2.HealthCheckResponse.SERVING
        with pytest.raises(aio.AioRpcError) as caught:
            await check_health(server.address, new_token())
    assert caught.value.code() is grpc.StatusCode.UNAUTHENTICATED


async def test_two_replicas_never_share_a_port():
    """Each server takes the first port of the range that nobody has."""
    async with serving() as first, serving() as second:
        assert first.address != second.address


async def test_full_range_is_a_config_error():
    """Where no port is free the message names the setting to change."""
    with socket.socket() as taken:
        taken.bind((LOOPBACK, 0))
        taken.listen()
        port = taken.getsockname()[1]
        server = PeerServer(PeerConfig(port_min=port, port_max=port), node_ip=LOOPBACK, token=TOKEN)
        with pytest.raises(ConfigError, match="port_min"):
            await server.start()


async def test_address_is_unknown_before_the_start():
    """Nobody can publish an address that is not bound."""
    server = PeerServer(PEER, node_ip=LOOPBACK, token=TOKEN)
    with pytest.raises(RuntimeError):
        _ = server.address


async def _watch_silently(server_options_, client_options, silence_s: float) -> grpc.StatusCode | None:
    """Hold a silent stream open; the code that it ended with, None if it did not."""
    server = aio.server(options=server_options_)

    async def silent(_request, context):
        await context.write(b"first")
        await asyncio.sleep(60)

    handler = grpc.unary_stream_rpc_method_handler(silent)
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("t.T", {"Silent": handler}),))
    port = server.add_insecure_port(f"{LOOPBACK}:0")
    await server.start()
    channel = aio.insecure_channel(f"{LOOPBACK}:{port}", options=client_options)
    call = channel.unary_stream("/t.T/Silent")(b"")
    try:
        await call.read()
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(call.read(), silence_s)
            return call.code()
    except aio.AioRpcError as error:
        return error.code()
    finally:
        await channel.close(None)
        await server.stop(0)
    return None


async def test_silence_of_many_pings_does_not_break_a_connection():
    """A stream that is silent for 20 client pings (a long prefill) lives on."""
    fast = Keepalive(ping_s=0.1, timeout_s=1.0)
    assert await _watch_silently(server_options(PEER, fast), channel_options(PEER, fast), silence_s=2.0) is None


async def test_pings_without_the_servers_consent_break_a_connection():
    """Control: the same client against a server with other options is cut off, so the test above can fail."""
    fast, slow = Keepalive(ping_s=0.1, timeout_s=1.0), Keepalive(ping_s=60.0, timeout_s=5.0)
    code = await _watch_silently(server_options(PEER, slow), channel_options(PEER, fast), silence_s=5.0)
    assert code is grpc.StatusCode.UNAVAILABLE
