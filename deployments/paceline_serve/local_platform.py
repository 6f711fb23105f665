"""Paceline on this machine: a Ray of its own, the application on it, and the wait until it really answers."""

import math
import time
from types import TracebackType
from typing import Self

import httpx

from paceline.config.schema import DeploymentConfig
from paceline.errors import SetupError
from paceline_serve.local_ray import LocalRay
from paceline_serve.names import LIGHT_CPUS
from paceline_serve.ports import check_ports

_READY_WITHIN_S = 600.0  # large models load for minutes
_POLL_S = 0.2
_SPARE_CPUS = 1  # for Ray Serve's own tasks


class LocalPlatform:
    """A deployment that lives as long as the ``with`` block; leaving the block ends every process of it."""

    def __init__(self, config: DeploymentConfig) -> None:
        self.config = config
        self.ray = LocalRay(num_cpus=logical_cpus(config))

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
        gateway = self.config.gateway
        host = f"[{gateway.host}]" if ":" in gateway.host else gateway.host
        return f"http://{host}:{gateway.http_port}"

    @property
    def grpc_address(self) -> str:
        """``host:port`` of the gRPC API."""
        gateway = self.config.gateway
        return f"{gateway.host}:{gateway.grpc_port}"

    def _start(self) -> None:
        self.ray.start()
        # Ray reads its environment at import, so it is imported by nobody before `LocalRay.start`.
        from paceline_serve import deploy, deploy_schema  # noqa: PLC0415

        deploy.apply_local(deploy_schema.render(self.config))
        give_up_at = time.monotonic() + _READY_WITHIN_S
        while not self._ready():
            deploy.check_deploying()
            if time.monotonic() > give_up_at:
                raise SetupError(f"Paceline was not ready after {_READY_WITHIN_S:g} s. Logs: {self.ray.log_folder()}")
            time.sleep(_POLL_S)

    def _ready(self) -> bool:
        """Whether a gateway has seen a real token."""
        try:
            return httpx.get(f"{self.url}/health", timeout=2.0).status_code == httpx.codes.OK
        except httpx.HTTPError:
            return False  # the proxy starts before the gateway


def logical_cpus(config: DeploymentConfig) -> int:
    """CPUs that Ray must believe in for all replicas to be placed."""
    remote = sum(section.replicas for section in config.drafters.values() if section.place == "remote")
    light = (config.gateway.replicas + remote) * LIGHT_CPUS
    return math.ceil(light + config.target.replicas * config.target.num_cpus) + _SPARE_CPUS
