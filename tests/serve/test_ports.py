import socket

import pytest

from paceline.config.schema import GatewayConfig
from paceline.errors import ConfigError
from paceline_serve.ports import check_ports, free_port


@pytest.mark.parametrize("host", ["127.0.0.2", "::1"])
def test_the_grpc_port_must_be_free_on_every_address(host):
    """Ray Serve opens it on all addresses, whatever the REST host is, so a listener on any of them is in the way."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        taken = socket.create_server((host, 0), family=family)
    except OSError:
        pytest.skip("this machine has no such address")
    with taken:
        port = taken.getsockname()[1]

        with pytest.raises(ConfigError, match=f"Port {port} for the gRPC API is in use"):
            check_ports(GatewayConfig(http_port=free_port("127.0.0.1"), grpc_port=port))


def test_the_rest_port_must_be_free_on_its_own_address():
    """A listener on another address does not keep the REST API from its host."""
    with socket.create_server(("127.0.0.2", 0)) as taken:
        check_ports(GatewayConfig(http_port=taken.getsockname()[1], grpc_port=free_port("0.0.0.0")))  # noqa: S104
