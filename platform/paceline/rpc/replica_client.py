"""Asks a replica about itself, from code that may block."""

import grpc

from paceline.config.schema import PeerConfig
from paceline.errors import ServiceUnreachableError
from paceline.rpc.auth import call_metadata
from paceline.rpc.endpoint import Endpoint
from paceline.rpc.options import channel_options
from paceline.v1 import replica_pb2, replica_pb2_grpc

_METRICS_WITHIN_S = 5.0


def read_metrics(endpoint: Endpoint, peer: PeerConfig) -> str:
    """The replica's metrics in Prometheus text. Raises ServiceUnreachableError."""
    with grpc.insecure_channel(endpoint.address, options=channel_options(peer)) as channel:
        stub = replica_pb2_grpc.ReplicaServiceStub(channel)  # type: ignore[no-untyped-call]
        try:
            response = stub.Metrics(
                replica_pb2.MetricsRequest(), metadata=call_metadata(endpoint.token), timeout=_METRICS_WITHIN_S
            )
        except grpc.RpcError as error:
            raise ServiceUnreachableError(endpoint.address, error.code().name) from error
    return str(response.text)
