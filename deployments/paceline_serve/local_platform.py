"""Paceline on this machine: a Ray of its own, the application on it, and the wait until it really answers."""

import math
import time
from functools import cached_property
from types import TracebackType
from typing import TYPE_CHECKING, Self

import httpx

from paceline.config.schema import DeploymentConfig
from paceline.errors import PacelineError, SetupError
from paceline_serve.local_ray import LocalRay
from paceline_serve.names import LIGHT_CPUS
from paceline_serve.ports import check_ports
from paceline_serve.start_failure import last_line

if TYPE_CHECKING:
    from paceline_serve.local_serve import LocalServe

_READY_WITHIN_S = 600.0  # large models load for minutes
_POLL_S = 0.2
_ANY_ADDRESS = {"0.0.0.0": "127.0.0.1", "::": "::1"}  # noqa: S104  # to connect to what binds every address
_SPARE_CPUS = 1  # for Ray Serve's own tasks


class LocalPlatform:
    """A deployment that lives as long as the ``with`` block; leaving the block ends every process of it."""

    def __init__(self, config: DeploymentConfig) -> None:
        self.config = config
        self.ray = LocalRay(num_cpus=logical_cpus(config), resources=custom_resources(config))

    def __enter__(self) -> Self:
        check_ports(self.config.gateway)
        try:
            self._start()
        except BaseException:
            self.ray.stop()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.ray.stop()

    @property
    def url(self) -> str:
        """Root of the REST API."""
        return f"http://{self._host}:{self.config.gateway.http_port}"

    @property
    def grpc_address(self) -> str:
        """``host:port`` of the gRPC API."""
        return f"{self._host}:{self.config.gateway.grpc_port}"

    @property
    def ray_address(self) -> str:
        """``host:port`` of Ray's GCS: what the operator's commands attach to."""
        import ray  # noqa: PLC0415  # reads its environment at import

        return str(ray.get_runtime_context().gcs_address)

    @property
    def _host(self) -> str:
        """The doors' host as a client on this machine names it."""
        host = _ANY_ADDRESS.get(self.config.gateway.host, self.config.gateway.host)
        return f"[{host}]" if ":" in host else host

    def apply(self, config: DeploymentConfig) -> None:
        """Apply a changed configuration; replicas whose identity stays the same go on running."""
        self.config = config
        self.serve.apply(config)

    def metrics(self, deployment: str) -> list[str]:
        """Metrics of each replica of a deployment, in Prometheus text, as its own process reports them."""
        return self.serve.metrics(deployment, self.config.peer)

    @cached_property
    def serve(self) -> "LocalServe":
        """Ray Serve, once Ray runs."""
        # Ray reads its environment while it is imported, so this must come after `LocalRay.start`.
        from paceline_serve.local_serve import LocalServe  # noqa: PLC0415

        return LocalServe()

    def _start(self) -> None:
        try:
            self.ray.start()
            self.serve.apply(self.config)
        except PacelineError:
            raise
        except Exception as error:  # what Ray raises has many types and many lines
            raise SetupError(f"Ray did not start: {last_line(str(error))}") from error
        give_up_at = time.monotonic() + _READY_WITHIN_S
        while not self._ready():
            self.serve.check_starting()
            if time.monotonic() > give_up_at:
                raise SetupError(f"Paceline was not ready after {_READY_WITHIN_S:g} s. Logs: {self.ray.log_folder()}")
            time.sleep(_POLL_S)

    def _ready(self) -> bool:
        """Whether a gateway has seen a real token."""
        try:
            # A web proxy that the environment names cannot reach this machine's own addresses.
            return httpx.get(f"{self.url}/health", timeout=2.0, trust_env=False).status_code == httpx.codes.OK
        except httpx.HTTPError:
            return False  # the proxy starts before the gateway


def logical_cpus(config: DeploymentConfig) -> int:
    """CPUs that Ray must believe in for all replicas to be placed, and as many again while they are replaced."""
    target = config.target
    targets = target.autoscaling.max_replicas if target.autoscaling else target.replicas
    remote = sum(section.replicas for section in config.drafters.values() if section.place == "remote")
    light = (config.gateway.replicas + remote) * LIGHT_CPUS
    return math.ceil(2 * (light + targets * target.num_cpus)) + _SPARE_CPUS


def custom_resources(config: DeploymentConfig) -> set[str]:
    """Names of the custom Ray resources that replicas ask for."""
    groups = (section.resources for section in config.drafters.values())
    return set().union(config.target.resources, config.gateway.resources, *groups)
