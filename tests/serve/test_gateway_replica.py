import pytest

from paceline_serve.gateway import _host_of, _is_loopback


@pytest.mark.parametrize(
    ("peer", "loopback"),
    [
        ("ipv4:127.0.0.1:4711", True),
        ("ipv6:%5B::1%5D:4711", True),
        ("ipv6:[::1]:4711", True),
        ("ipv6:%5B::ffff:127.0.0.1%5D:4711", True),
        ("ipv4:10.0.0.7:4711", False),
        ("ipv6:%5B::ffff:10.0.0.7%5D:4711", False),
        ("unknown", False),
        ("", False),
    ],
)
def test_only_callers_on_this_machine_are_loopback(peer, loopback):
    """Ray Serve's gRPC door binds every address, so callers are told apart by theirs."""
    assert _is_loopback(_host_of(peer)) is loopback


def test_localhost_is_this_machine():
    """A gateway bound to the name localhost is closed to others as well."""
    assert _is_loopback("localhost")
