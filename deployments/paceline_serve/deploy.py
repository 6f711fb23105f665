"""Applies a rendered schema to the Ray that this process is connected to, and watches it come up."""

import logging
from typing import Any

from ray import serve
from ray.serve._private.client import ServeControllerClient
from ray.serve.context import _get_global_client
from ray.serve.schema import ServeDeploySchema

from paceline.errors import SetupError
from paceline_serve.names import APP_NAME


def apply_local(schema: ServeDeploySchema) -> None:
    """Start Ray Serve by the schema's options and apply it; returns while replicas still start.

    Not through ``serve.run``, which cannot set everything that the schema can; a contract test holds the
    private client's ``deploy_apps`` in place.
    """
    logging.getLogger("ray.serve").setLevel(logging.ERROR)  # of this process; the replicas' logs are in files
    serve.start(
        proxy_location=schema.proxy_location,
        http_options=schema.http_options.model_dump(exclude_unset=True),
        grpc_options=schema.grpc_options.model_dump(exclude_unset=True),
        logging_config=schema.logging_config,
    )
    _client().deploy_apps(schema)


def replica_pids() -> dict[str, list[int]]:
    """Process ids of running replicas, by deployment."""
    pids: dict[str, list[int]] = {}
    for deployment in _application().get("deployments", {}).values():
        running = [replica["pid"] for replica in deployment["replicas"] if replica["state"] == "RUNNING"]
        pids[deployment["name"]] = [pid for pid in running if pid is not None]
    return pids


def check_deploying() -> None:
    """Raise SetupError if the application has failed, or any replica's constructor has."""
    application = _application()
    failed = application.get("status") == "DEPLOY_FAILED"
    messages = [application.get("message", "")] if failed else []
    messages += [d["message"] for d in application.get("deployments", {}).values() if "failed to start" in d["message"]]
    if messages:
        raise SetupError(_last_line(messages[-1]))


def _client() -> ServeControllerClient:
    client = _get_global_client()
    if client is None:
        raise SetupError("Ray Serve does not run here any more.")
    return client


def _application() -> dict[str, Any]:
    details: dict[str, Any] = _client().get_serve_details()
    found: dict[str, Any] = details["applications"].get(APP_NAME, {})
    return found


def _last_line(message: str) -> str:
    """The sentence at the end of a stack trace; the trace itself is in Ray's logs."""
    lines = [line for line in message.strip().splitlines() if line.strip()]
    return lines[-1].strip() if lines else "the application failed to deploy"
