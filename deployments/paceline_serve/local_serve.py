"""Ray Serve on the Ray that this process is connected to: applies configurations, looks at replicas.

Importing this module imports Ray, which reads its environment then: `LocalRay.start` comes first.
"""

import logging
import time
from typing import Any

from ray import serve
from ray.serve._private.client import ServeControllerClient
from ray.serve.context import _get_global_client

from paceline.config.schema import DeploymentConfig, PeerConfig
from paceline.errors import SetupError
from paceline.rpc.endpoint import Endpoint
from paceline.rpc.replica_client import read_metrics
from paceline_serve.deploy_schema import render
from paceline_serve.membership import MEMBERSHIP
from paceline_serve.names import app_of, is_ours
from paceline_serve.peer_metadata import endpoints_of
from paceline_serve.router_start import start_router
from paceline_serve.start_failure import failure_of

_MEMBERS_WITHIN_S = 10.0


class LocalServe:
    """The applications as the process that deployed them sees them."""

    def apply(self, config: DeploymentConfig) -> None:
        """Start Ray Serve if it does not run, and apply; returns while replicas still start.

        Not through ``serve.run``, which cannot set everything that the schema can; a contract test holds the
        private client's ``deploy_apps`` in place.
        """
        logging.getLogger("ray.serve").setLevel(logging.ERROR)  # of this process; the replicas' logs are in files
        schema = render(config)
        serve.start(
            proxy_location=schema.proxy_location,
            http_options=schema.http_options.model_dump(exclude_unset=True),
            grpc_options=schema.grpc_options.model_dump(exclude_unset=True),
            logging_config=schema.logging_config,
        )
        _client().deploy_apps(schema)

    def check_starting(self) -> None:
        """Raise SetupError if an application cannot start."""
        for application in _applications():
            if failure := failure_of(application):
                raise SetupError(failure)

    def replica_pids(self) -> dict[str, list[int]]:
        """Process ids of running replicas, by deployment."""
        return {
            name: [replica["pid"] for replica in deployment["replicas"] if replica["state"] == "RUNNING"]
            for application in _applications()
            for name, deployment in application["deployments"].items()
        }

    def endpoints(self, deployment: str) -> list[Endpoint]:
        """Where the replicas of a deployment serve their peers. Raises SetupError if there are none."""
        start_router(serve.get_deployment_handle(deployment, app_of(deployment)))
        give_up_at = time.monotonic() + _MEMBERS_WITHIN_S
        while not (found := endpoints_of(MEMBERSHIP.replicas(deployment))):
            if time.monotonic() > give_up_at:
                raise SetupError(f"The deployment {deployment} has no running replica.")
            time.sleep(0.05)
        return found

    def metrics(self, deployment: str, peer: PeerConfig) -> list[str]:
        """Metrics of each replica in Prometheus text, as its own process reports them."""
        return [read_metrics(endpoint, peer) for endpoint in self.endpoints(deployment)]


def _client() -> ServeControllerClient:
    client = _get_global_client()
    if client is None:
        raise SetupError("Ray Serve does not run here any more.")
    return client


def _applications() -> list[dict[str, Any]]:
    details: dict[str, Any] = _client().get_serve_details()
    return [application for name, application in details["applications"].items() if is_ours(name)]
