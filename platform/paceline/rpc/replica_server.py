"""Questions that every replica answers about itself, and the order to drain."""

from collections.abc import Callable
from typing import Any

from grpc.aio import Server, ServicerContext

from paceline.errors import InvalidRequestError
from paceline.rpc.replica_status import ReplicaStatus, encode_status
from paceline.v1 import replica_pb2, replica_pb2_grpc


class ReplicaServicer(replica_pb2_grpc.ReplicaServiceServicer):
    """Serves the replica's metrics and its status, and drains it."""

    def __init__(
        self,
        render_metrics: Callable[[], str],
        status: Callable[[], ReplicaStatus],
        *,
        drain: Callable[[], None] | None = None,
    ) -> None:
        """``render_metrics`` returns Prometheus text, format 0.0.4; ``drain`` must not wait, and None refuses it."""
        self._render_metrics = render_metrics
        self._status = status
        self._drain = drain

    def add_to(self, server: Server) -> None:
        """Register the service."""
        replica_pb2_grpc.add_ReplicaServiceServicer_to_server(self, server)  # type: ignore[no-untyped-call]

    async def Metrics(  # noqa: N802  # name from the proto
        self, request: replica_pb2.MetricsRequest, context: ServicerContext[Any, Any]
    ) -> replica_pb2.MetricsResponse:
        """Return the metrics."""
        del request, context
        return replica_pb2.MetricsResponse(text=self._render_metrics())

    async def Status(  # noqa: N802  # name from the proto
        self, request: replica_pb2.StatusRequest, context: ServicerContext[Any, Any]
    ) -> replica_pb2.StatusResponse:
        """Return the status."""
        del request, context
        return encode_status(self._status())

    async def Drain(  # noqa: N802  # name from the proto
        self, request: replica_pb2.DrainRequest, context: ServicerContext[Any, Any]
    ) -> replica_pb2.DrainResponse:
        """Start to drain."""
        del request, context
        if self._drain is None:
            raise InvalidRequestError("This replica does not drain: change the deployment to stop it.")
        self._drain()
        return replica_pb2.DrainResponse()
