"""Ports of the public doors on this machine."""

import socket

from paceline.config.schema import GatewayConfig
from paceline.errors import ConfigError


def check_ports(gateway: GatewayConfig) -> None:
    """Raise ConfigError, naming the flag to change, if one of the doors' ports is taken."""
    for door, port, flag in (
        ("REST", gateway.http_port, "--http-port"),
        ("gRPC", gateway.grpc_port, "--grpc-port"),
    ):
        if not _is_free(gateway.host, port):
            raise ConfigError(f"Port {port} for the {door} API is in use. Choose another with {flag}.")


def free_port(host: str) -> int:
    """A port that nobody listens on at this moment."""
    with socket.socket(_family(host), socket.SOCK_STREAM) as probe:
        probe.bind((host, 0))
        return int(probe.getsockname()[1])


def _is_free(host: str, port: int) -> bool:
    with socket.socket(_family(host), socket.SOCK_STREAM) as probe:
        # As servers do: a connection that has just ended does not count as in use.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError:
            return False
    return True


def _family(host: str) -> socket.AddressFamily:
    return socket.AF_INET6 if ":" in host else socket.AF_INET
