"""Asks replicas about themselves, from code that may block."""

import contextlib
import time
from collections.abc import Sequence
from typing import Any

import grpc

from paceline.config.schema import PeerConfig
from paceline.errors import ServiceUnreachableError
from paceline.rpc.auth import call_metadata
from paceline.rpc.endpoint import Endpoint
from paceline.rpc.options import channel_options
from paceline.rpc.replica_status import ReplicaStatus, decode_status
from paceline.v1 import replica_pb2, replica_pb2_grpc

_METRICS_WITHIN_S = 5.0
_DRAIN_WITHIN_S = 5.0
_UNKNOWN_ROLE = "it is of a newer release"


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


def read_statuses(
    endpoints: Sequence[Endpoint], *, within_s: float, peer: PeerConfig | None = None
) -> dict[str, ReplicaStatus | str]:
    """Status of each replica by id, or why there is none, in words. All are asked at the same time."""
    with contextlib.ExitStack() as stack:
        calls = {}
        give_up_at = time.monotonic() + within_s
        for endpoint in endpoints:
            channel = stack.enter_context(
                grpc.insecure_channel(endpoint.address, options=channel_options(peer or PeerConfig()))
            )
            stub = replica_pb2_grpc.ReplicaServiceStub(channel)  # type: ignore[no-untyped-call]
            calls[endpoint.replica_id] = stub.Status.future(
                replica_pb2.StatusRequest(), metadata=call_metadata(endpoint.token), timeout=within_s
            )
        # The second limit is for a name that does not resolve, which may keep a call from ending in time.
        return {key: _status_of(call, give_up_at - time.monotonic() + within_s) for key, call in calls.items()}


def drain_replica(endpoint: Endpoint, peer: PeerConfig | None = None) -> None:
    """Make a replica take no new work. Raises ServiceUnreachableError, also where it does not know how."""
    with grpc.insecure_channel(endpoint.address, options=channel_options(peer or PeerConfig())) as channel:
        stub = replica_pb2_grpc.ReplicaServiceStub(channel)  # type: ignore[no-untyped-call]
        try:
            stub.Drain(replica_pb2.DrainRequest(), metadata=call_metadata(endpoint.token), timeout=_DRAIN_WITHIN_S)
        except grpc.RpcError as error:
            raise ServiceUnreachableError(endpoint.address, _in_words(error.code())) from error


def _status_of(call: "grpc.Future[Any]", timeout_s: float) -> ReplicaStatus | str:
    try:
        status = decode_status(call.result(timeout=max(0.0, timeout_s)))
    except grpc.FutureTimeoutError:
        return _in_words(grpc.StatusCode.DEADLINE_EXCEEDED)
    except grpc.RpcError as error:
        return _in_words(error.code())
    return _UNKNOWN_ROLE if status is None else status


def _in_words(code: grpc.StatusCode) -> str:
    match code:
        case grpc.StatusCode.UNIMPLEMENTED:
            return "it is of an older release"
        case grpc.StatusCode.DEADLINE_EXCEEDED:
            return "it does not answer in time"
        case grpc.StatusCode.UNAVAILABLE:
            return "it cannot be reached from here"
    return f"it answers {code.name}"
