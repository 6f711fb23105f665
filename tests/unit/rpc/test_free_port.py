import socket

import pytest

from paceline.rpc.free_port import port_is_free


@pytest.mark.parametrize("host", ["127.0.0.1", "::1"])
def test_a_port_is_free_until_somebody_listens_and_after(host):
    """Both families; a connection that has just ended does not keep the port."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        server = socket.create_server((host, 0), family=family)
    except OSError:
        pytest.skip("this machine has no such address")
    port = server.getsockname()[1]
    assert not port_is_free(port, host)

    with socket.create_connection((host, port)) as client:
        accepted, _ = server.accept()
        accepted.close()
        client.recv(1)
    server.close()

    assert port_is_free(port, host)
