"""Ports of the public doors on this machine."""

import socket

from paceline.config.schema import GatewayConfig
from paceline.errors import ConfigError
from paceline.rpc.free_port import port_is_free


def check_ports(gateway: GatewayConfig) -> None:
    """Raise ConfigError, naming the flag to change, if one of the doors' ports is taken."""
    for door, port, flag in (
        ("REST", gateway.http_port, "--http-port"),
        ("gRPC", gateway.grpc_port, "--grpc-port"),
    ):
        if not port_is_free(port, gateway.host):
            raise ConfigError(f"Port {port} for the {door} API is in use. Choose another with {flag}.")


def free_port(host: str) -> int:
    """A port that nobody listens on at this moment."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as probe:
        probe.bind((host, 0))
        return int(probe.getsockname()[1])
