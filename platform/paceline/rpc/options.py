"""gRPC options of both ends of every peer connection, in one place so that they cannot drift apart.

A client that pings more often than its server allows is cut off with GOAWAY "too_many_pings", so the
client's ping interval and the server's limit are both derived from one `Keepalive`.
"""

from dataclasses import dataclass

from paceline.config.schema import PeerConfig

ChannelOptions = list[tuple[str, int]]


@dataclass(frozen=True, slots=True)
class Keepalive:
    """When a silent connection is probed, and when it counts as dead."""

    ping_s: float = 10.0
    timeout_s: float = 5.0


KEEPALIVE = Keepalive()


def server_options(peer: PeerConfig, keepalive: Keepalive = KEEPALIVE) -> ChannelOptions:
    """Options of a replica's own gRPC server."""
    return [
        *_shared(peer, keepalive),
        # An integer: with address reuse two replicas could bind one port and share its calls.
        ("grpc.so_reuseport", 0),
        ("grpc.http2.min_ping_interval_without_data_ms", int(keepalive.ping_s * 500)),
    ]


def channel_options(peer: PeerConfig, keepalive: Keepalive = KEEPALIVE) -> ChannelOptions:
    """Options of a channel to another replica."""
    return [
        *_shared(peer, keepalive),
        # Channels must not share one connection behind our back, nor dial a cluster address through a web proxy.
        ("grpc.use_local_subchannel_pool", 1),
        ("grpc.enable_http_proxy", 0),
        # Repeating a call is the caller's decision: a second Stream would be a second attempt.
        ("grpc.enable_retries", 0),
        ("grpc.initial_reconnect_backoff_ms", 100),
        # In fact the shortest time that an attempt to connect is given: a handshake on a crowded machine takes longer.
        ("grpc.min_reconnect_backoff_ms", 2000),
        ("grpc.max_reconnect_backoff_ms", 2000),
    ]


def _shared(peer: PeerConfig, keepalive: Keepalive) -> ChannelOptions:
    return [
        ("grpc.max_receive_message_length", peer.max_message_bytes),
        ("grpc.max_send_message_length", peer.max_message_bytes),
        ("grpc.keepalive_time_ms", int(keepalive.ping_s * 1000)),
        ("grpc.keepalive_timeout_ms", int(keepalive.timeout_s * 1000)),
        ("grpc.keepalive_permit_without_calls", 1),
        ("grpc.http2.max_pings_without_data", 0),
    ]
