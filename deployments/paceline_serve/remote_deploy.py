"""``paceline serve --address``: deploys to a Ray cluster through its REST API, beside what runs there."""

import json
import time
from collections.abc import Mapping
from typing import Any

import httpx
import typer

from paceline.config.schema import DeploymentConfig
from paceline.errors import ConfigError, SetupError
from paceline_serve.names import APP_NAME

_APPLICATIONS = "/api/serve/applications/"
_REQUEST_WITHIN_S = 30.0
_RUNNING_WITHIN_S = 900.0
_POLL_S = 2.0


def deploy_remote(config: DeploymentConfig, address: str, *, as_json: bool) -> None:
    """Deploy or update the application; returns when all its replicas run. Nothing else there is touched."""
    from paceline_serve.deploy_schema import render  # noqa: PLC0415  # imports Ray, which takes a second

    with httpx.Client(base_url=address.rstrip("/"), timeout=_REQUEST_WITHIN_S) as http:
        running = _read(http)
        schema = render(config, proxy_location="EveryNode").model_dump(mode="json", exclude_unset=True)
        _write(http, merge(running, schema))
        _wait(http)
    gateway = config.gateway
    if as_json:
        typer.echo(json.dumps({"model": config.model.served_name, "address": address, "http_port": gateway.http_port}))
    else:
        typer.echo(f"{config.model.served_name} runs on {address}; REST on port {gateway.http_port}")


def merge(running: Mapping[str, Any], schema: Mapping[str, Any]) -> dict[str, Any]:
    """The schema together with the other applications of the cluster, which Ray Serve would delete otherwise.

    Raises ConfigError where the proxies already listen on other ports: Ray Serve ignores new ones.
    """
    for section in ("http_options", "grpc_options"):
        port = (running.get(section) or {}).get("port")
        if running.get("applications") and port != schema[section]["port"]:
            flag = section.replace("_options", "-port")
            raise ConfigError(f"The cluster's proxies listen on port {port}. Use --{flag} {port}, or another cluster.")
    others = [
        details["deployed_app_config"]
        for name, details in running.get("applications", {}).items()
        if name != APP_NAME and details.get("deployed_app_config")
    ]
    return {**schema, "applications": [*others, *schema["applications"]]}


def _read(http: httpx.Client) -> dict[str, Any]:
    try:
        response = http.get(_APPLICATIONS)
        response.raise_for_status()
    except httpx.HTTPError as error:
        raise SetupError(f"The Ray cluster at {http.base_url} does not answer: {error}.") from error
    running: dict[str, Any] = response.json()
    return running


def _write(http: httpx.Client, schema: Mapping[str, Any]) -> None:
    try:
        response = http.put(_APPLICATIONS, json=schema)
    except httpx.HTTPError as error:
        raise SetupError(f"The Ray cluster at {http.base_url} does not answer: {error}.") from error
    if response.is_error:
        raise SetupError(f"The Ray cluster refused the application: {response.text[:500]}")


def _wait(http: httpx.Client) -> None:
    give_up_at = time.monotonic() + _RUNNING_WITHIN_S
    while time.monotonic() < give_up_at:
        application = _read(http).get("applications", {}).get(APP_NAME, {})
        if application.get("status") == "RUNNING":
            return
        if application.get("status") == "DEPLOY_FAILED":
            raise SetupError(f"The application failed to deploy: {application.get('message', '')[-500:]}")
        time.sleep(_POLL_S)
    raise SetupError(f"The application was not running after {_RUNNING_WITHIN_S:g} s.")
