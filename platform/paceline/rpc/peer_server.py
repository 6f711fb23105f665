"""The gRPC server that each replica runs for its peers, beside Ray Serve's own."""

from collections.abc import Sequence
from typing import Protocol

from grpc import aio
from grpc_health.v1 import health, health_pb2, health_pb2_grpc

from paceline.config.schema import PeerConfig
from paceline.errors import ConfigError
from paceline.rpc.auth import TokenInterceptor
from paceline.rpc.error_interceptor import ErrorInterceptor
from paceline.rpc.free_port import port_is_free
from paceline.rpc.options import KEEPALIVE, Keepalive, server_options


class PeerServicer(Protocol):
    """A service that can register itself."""

    def add_to(self, server: aio.Server) -> None:
        """Register the service."""


class PeerServer:
    """Serves peers on one port of the configured range, on the node's address, behind a token.

    Build, start and stop it on the loop that serves the calls.
    """

    def __init__(
        self,
        peer: PeerConfig,
        *,
        node_ip: str,
        token: str,
        servicers: Sequence[PeerServicer] = (),
        keepalive: Keepalive = KEEPALIVE,
    ) -> None:
        self._peer = peer
        self._host = f"[{node_ip}]" if ":" in node_ip else node_ip
        self._node_ip = node_ip
        self._port: int | None = None
        self.token = token
        self.server: aio.Server = aio.server(
            interceptors=[TokenInterceptor(token), ErrorInterceptor()], options=server_options(peer, keepalive)
        )
        self._health = health.aio.HealthServicer()  # type: ignore[attr-defined]
        health_pb2_grpc.add_HealthServicer_to_server(self._health, self.server)
        for servicer in servicers:
            servicer.add_to(self.server)

    @property
    def address(self) -> str:
        """``host:port``; known once the server has started."""
        if self._port is None:
            raise RuntimeError("the peer server has not been started")
        return f"{self._host}:{self._port}"

    async def start(self) -> None:
        """Bind the first free port and serve. Raises ConfigError if the whole range is taken."""
        self._port = self._bind()
        await self.server.start()
        await self._health.set("", health_pb2.HealthCheckResponse.SERVING)

    async def stop(self, grace_s: float) -> None:
        """Refuse new calls, give running ones ``grace_s``, then cancel them."""
        await self._health.enter_graceful_shutdown()
        await self.server.stop(grace_s)

    def _bind(self) -> int:
        for port in range(self._peer.port_min, self._peer.port_max + 1):
            # Asked first because gRPC writes a line to stderr for each port that it cannot bind.
            if not port_is_free(port, self._node_ip):
                continue
            try:
                return int(self.server.add_insecure_port(f"{self._host}:{port}"))
            except RuntimeError:
                continue  # another process took it since
        raise ConfigError(
            f"No port from {self._peer.port_min} to {self._peer.port_max} is free on {self._node_ip}. "
            "Widen peer.port_min and peer.port_max."
        )
