from paceline.config.schema import PeerConfig
from paceline.rpc.options import KEEPALIVE, Keepalive, channel_options, server_options

PEER = PeerConfig()


def test_server_allows_the_pings_that_its_clients_send():
    """A client's ping interval is never below what the server takes for abuse."""
    for keepalive in (KEEPALIVE, Keepalive(0.2, 0.1), Keepalive(60, 20)):
        server, client = dict(server_options(PEER, keepalive)), dict(channel_options(PEER, keepalive))
        assert client["grpc.keepalive_time_ms"] > server["grpc.http2.min_ping_interval_without_data_ms"]
        assert client["grpc.keepalive_permit_without_calls"] == server["grpc.keepalive_permit_without_calls"] == 1


def test_both_ends_have_one_message_limit():
    """What one end may send the other may receive, and it is what the configuration says."""
    limits = {
        dict(options)[f"grpc.max_{way}_message_length"]
        for options in (server_options(PEER), channel_options(PEER))
        for way in ("send", "receive")
    }
    assert limits == {PEER.max_message_bytes}


def test_every_option_is_an_integer():
    """gRPC ignores a boolean for so_reuseport, and two replicas would then share a port."""
    for _, value in server_options(PEER) + channel_options(PEER):
        assert type(value) is int
    assert dict(server_options(PEER))["grpc.so_reuseport"] == 0
