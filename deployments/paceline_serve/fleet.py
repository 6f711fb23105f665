"""Looks at running replicas from the process that deployed them."""

import time

import grpc
from ray import serve

from paceline.config.schema import PeerConfig
from paceline.errors import SetupError
from paceline.rpc.auth import call_metadata
from paceline.rpc.endpoint import Endpoint
from paceline.rpc.options import channel_options
from paceline.v1 import common_pb2, common_pb2_grpc
from paceline_serve.membership import MEMBERSHIP
from paceline_serve.names import APP_NAME
from paceline_serve.peer_metadata import endpoints_of
from paceline_serve.router_start import start_router

_MEMBERS_WITHIN_S = 10.0
_METRICS_WITHIN_S = 5.0


def endpoints(deployment: str) -> list[Endpoint]:
    """Endpoints of a deployment's replicas. Raises SetupError if it has none."""
    start_router(serve.get_deployment_handle(deployment, APP_NAME))
    give_up_at = time.monotonic() + _MEMBERS_WITHIN_S
    while not (found := endpoints_of(MEMBERSHIP.replicas(deployment))):
        if time.monotonic() > give_up_at:
            raise SetupError(f"The deployment {deployment} has no running replica.")
        time.sleep(0.05)
    return found


def metrics_text(endpoint: Endpoint, peer: PeerConfig) -> str:
    """A replica's metrics in Prometheus text, from the replica itself."""
    with grpc.insecure_channel(endpoint.address, options=channel_options(peer)) as channel:
        stub = common_pb2_grpc.ReplicaServiceStub(channel)  # type: ignore[no-untyped-call]
        response = stub.Metrics(
            common_pb2.MetricsRequest(), metadata=call_metadata(endpoint.token), timeout=_METRICS_WITHIN_S
        )
    return str(response.text)


def metric(text: str, name: str) -> float:
    """Sum over all series of one metric in Prometheus text; 0 if it is not there."""
    total = 0.0
    for line in text.splitlines():
        series, _, value = line.rpartition(" ")
        if series.partition("{")[0] == name:
            total += float(value)
    return total
