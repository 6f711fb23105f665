import pytest

from paceline.rpc.loopback import host_of, is_loopback


@pytest.mark.parametrize(
    ("host", "loopback"),
    [
        ("127.0.0.1", True),
        ("127.8.9.1", True),
        ("::1", True),
        ("::ffff:127.0.0.1", True),
        ("localhost", True),
        ("::ffff:10.0.0.1", False),
        ("10.0.0.1", False),
        ("0.0.0.0", False),  # noqa: S104  # an address to judge, not to bind
        ("fe80::1", False),
        ("localhost.example.org", False),
        ("", False),
    ],
)
def test_only_the_machine_itself_is_loopback(host, loopback):
    """IPv4, IPv6 and mapped addresses of the machine count; all else does not, unknown forms included."""
    assert is_loopback(host) is loopback


@pytest.mark.parametrize(
    ("address", "host"),
    [("127.0.0.1:9000", "127.0.0.1"), ("[::1]:9000", "::1"), ("gateway.example:1", "gateway.example")],
)
def test_the_port_is_taken_off(address, host):
    """Names, IPv4 and IPv6 in brackets."""
    assert host_of(address) == host
