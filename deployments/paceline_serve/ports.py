"""Ports of the public doors on this machine."""

import socket

from paceline.config.schema import GatewayConfig
from paceline.errors import ConfigError
from paceline.rpc.free_port import port_is_free

EVERY_ADDRESS = "0.0.0.0"  # noqa: S104  # where Ray Serve opens its gRPC port; it cannot be told otherwise


def check_ports(gateway: GatewayConfig) -> None:
    """Raise ConfigError, naming the flag to change, if one of the doors' ports is taken."""
    # Of a family that this machine does not have, no port is free, not even any (0).
    everywhere = [host for host in (EVERY_ADDRESS, "::") if port_is_free(0, host)]
    for door, port, hosts, flag in (
        ("REST", gateway.http_port, [gateway.host], "--http-port"),
        ("gRPC", gateway.grpc_port, everywhere, "--grpc-port"),
    ):
        if not all(port_is_free(port, host) for host in hosts):
            raise ConfigError(f"Port {port} for the {door} API is in use. Choose another with {flag}.")


def free_port(host: str) -> int:
    """A port that nobody listens on at this moment."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as probe:
        probe.bind((host, 0))
        return int(probe.getsockname()[1])
