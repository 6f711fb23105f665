"""Questions that every replica answers about itself."""

from collections.abc import Callable
from typing import Any

from grpc.aio import Server, ServicerContext

from paceline.v1 import common_pb2, common_pb2_grpc


class ReplicaServicer(common_pb2_grpc.ReplicaServiceServicer):
    """Serves the replica's metrics."""

    def __init__(self, render_metrics: Callable[[], str]) -> None:
        """``render_metrics`` returns Prometheus text, format 0.0.4."""
        self._render_metrics = render_metrics

    def add_to(self, server: Server) -> None:
        """Register the service."""
        common_pb2_grpc.add_ReplicaServiceServicer_to_server(self, server)  # type: ignore[no-untyped-call]

    async def Metrics(  # noqa: N802  # name from the proto
        self, request: common_pb2.MetricsRequest, context: ServicerContext[Any, Any]
    ) -> common_pb2.MetricsResponse:
        """Return the metrics."""
        del request, context
        return common_pb2.MetricsResponse(text=self._render_metrics())
