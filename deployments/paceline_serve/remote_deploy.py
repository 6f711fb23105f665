"""``paceline serve --address``: deploys to a Ray cluster through its REST API, beside what runs there."""

import json
import time
from collections.abc import Collection, Mapping, Sequence
from typing import Any
from urllib.parse import urlsplit

import httpx
import typer

from paceline.config.schema import DeploymentConfig
from paceline.drafting.head_fit import check_heads
from paceline.errors import ConfigError, ModelUnavailableError, SetupError
from paceline.modeling.resolve import find_model
from paceline.rpc.loopback import is_loopback
from paceline_serve.names import is_ours
from paceline_serve.remote_health import Health, wait_healthy
from paceline_serve.serve_flags import folders_of
from paceline_serve.start_failure import failure_of, messages_of, notes_of

_APPLICATIONS = "/api/serve/applications/"
_REQUEST_WITHIN_S = 30.0
_RUNNING_WITHIN_S = 900.0
_POLL_S = 2.0


def deploy_remote(config: DeploymentConfig, address: str, *, as_json: bool) -> None:
    """Deploy or update the application; returns when it answers, or runs where it cannot be reached from here.

    Other applications of the cluster stay as they are. A cluster that a Kubernetes RayService owns is set back
    by its operator: there the application belongs into ``serveConfigV2``.
    """
    # These import Ray, which takes a second.
    from ray._private.authentication.http_token_authentication import (  # noqa: PLC0415
        get_auth_headers_if_auth_enabled,
    )

    from paceline_serve.deploy_schema import render  # noqa: PLC0415

    host = _host_of(address)
    check_heads(config, find_model)  # those that are on this machine too
    for folder in folders_of(config):
        typer.echo(f"The folder {folder} must exist on every machine of the cluster.", err=True)
    with httpx.Client(
        base_url=address.rstrip("/"),
        timeout=_REQUEST_WITHIN_S,
        headers=get_auth_headers_if_auth_enabled({}),
        trust_env=not is_loopback(host),
    ) as http:
        running = _read(http)
        try:
            schema = render(config, proxy_location="EveryNode").model_dump(mode="json", exclude_unset=True)
        except ModelUnavailableError as error:
            raise ConfigError(
                f"Which features the targets have to keep cannot be told here: {error} If the head is on the cluster "
                "only, say it: engine.features: [last], or for an EAGLE-3 head its name as the group has it."
            ) from error
        _write(http, merge(running, schema))
        said_before = {said for details in running.get("applications", {}).values() for said in messages_of(details)}
        _wait(http, [application["name"] for application in schema["applications"]], said_before)
    _announce(config, f"[{host}]" if ":" in host else host, as_json=as_json)


def _host_of(address: str) -> str:
    """Host of the cluster's REST API. Raises ConfigError if this is no address of one."""
    try:
        parts = urlsplit(address)
        usable = parts.scheme in {"http", "https"} and parts.port != 0
    except ValueError:  # a port that is no port
        usable = False
    if not usable or parts.hostname is None:
        raise ConfigError(f"'{address}' is no address of a Ray cluster's dashboard; it looks like http://HEAD:8265.")
    return parts.hostname


def merge(running: Mapping[str, Any], schema: Mapping[str, Any]) -> dict[str, Any]:
    """The schema together with the other applications of the cluster, which Ray Serve would delete otherwise.

    Ours that the schema leaves out, former drafter groups, are deleted.

    Raises ConfigError where the proxies already run with other settings or without our gRPC service: Ray Serve
    ignores new ones.
    """
    _check_proxies(running, schema)
    others = [
        details["deployed_app_config"]
        for name, details in running.get("applications", {}).items()
        if not is_ours(name) and details.get("deployed_app_config")
    ]
    merged = dict(schema)
    # At the top this setting would be the whole cluster's.
    logging = merged.pop("logging_config", None)
    ours = [{**application, "logging_config": logging} for application in schema["applications"]]
    return {**merged, "applications": [*others, *ours]}


def _check_proxies(running: Mapping[str, Any], schema: Mapping[str, Any]) -> None:
    for section, key, advice in (
        ("http_options", "port", "Use --http-port {}, or another cluster."),
        ("grpc_options", "port", "Use --grpc-port {}, or another cluster."),
        ("http_options", "host", "Set gateway.host to {} in the configuration, or use another cluster."),
    ):
        found = (running.get(section) or {}).get(key)
        if found is not None and found != schema[section][key]:
            raise ConfigError(f"The cluster's proxies listen on {key} {found}. {advice.format(found)}")
    served = running.get("grpc_options")  # absent where Ray Serve does not run yet
    if served is None:
        return
    wanted = schema["grpc_options"]["grpc_servicer_functions"]
    if missing := sorted(set(wanted) - set(served.get("grpc_servicer_functions") or ())):
        raise ConfigError(
            "Ray Serve runs on the cluster already, and its proxies were started without Paceline's gRPC service, "
            f"which cannot be added while they run. Start Ray Serve with {', '.join(missing)} among its "
            "grpc_servicer_functions, or use another cluster."
        )


def _read(http: httpx.Client) -> dict[str, Any]:
    try:
        response = http.get(_APPLICATIONS)
        response.raise_for_status()
        running: dict[str, Any] = response.json()
    except httpx.HTTPStatusError as error:
        if error.response.status_code in {httpx.codes.UNAUTHORIZED, httpx.codes.FORBIDDEN}:
            raise SetupError(
                f"The Ray cluster at {http.base_url} wants a token. Set RAY_AUTH_MODE=token and RAY_AUTH_TOKEN."
            ) from error
        raise SetupError(f"The Ray cluster at {http.base_url} does not answer as one: {error}.") from error
    except (httpx.HTTPError, json.JSONDecodeError) as error:
        raise SetupError(f"The Ray cluster at {http.base_url} does not answer: {error}.") from error
    return running


def _write(http: httpx.Client, schema: Mapping[str, Any]) -> None:
    try:
        response = http.put(_APPLICATIONS, json=schema)
    except httpx.HTTPError as error:
        raise SetupError(f"The Ray cluster at {http.base_url} does not answer: {error}.") from error
    if response.is_error:
        raise SetupError(f"The Ray cluster refused the application: {response.text[:500]}")


def _wait(http: httpx.Client, names: Sequence[str], said_before: Collection[str]) -> None:
    """Wait until all our applications run, and those that are no longer wanted are gone.

    ``said_before`` has Ray Serve's messages from before: they are about an earlier try.
    """
    give_up_at = time.monotonic() + _RUNNING_WITHIN_S
    told: set[str] = set()
    while time.monotonic() < give_up_at:
        applications = _read(http).get("applications", {})
        ours = {name: details for name, details in applications.items() if is_ours(name)}
        if ours.keys() == set(names) and all(details.get("status") == "RUNNING" for details in ours.values()):
            return
        for name, details in ours.items():
            if failure := failure_of(details, before=said_before):
                raise SetupError(f"The application {name} failed to deploy: {failure}")
            # Such as that no machine has what a replica asks for.
            for note in set(notes_of(details, before=said_before)) - told:
                typer.echo(note, err=True)
                told.add(note)
        time.sleep(_POLL_S)
    raise SetupError(f"The applications were not running after {_RUNNING_WITHIN_S:g} s.")


def _announce(config: DeploymentConfig, host: str, *, as_json: bool) -> None:
    url, grpc_address = f"http://{host}:{config.gateway.http_port}", f"{host}:{config.gateway.grpc_port}"
    health = wait_healthy(url)
    facts = {"model": config.model.served_name, "http": url, "grpc": grpc_address, "health": health.value}
    if as_json:
        typer.echo(json.dumps(facts))
        return
    typer.echo(f"{facts['model']} is {'ready' if health is Health.READY else 'deployed'}")
    typer.echo(f"  REST  {url}/v1")
    typer.echo(f"  gRPC  {grpc_address}")
    match health:
        case Health.UNREACHABLE:
            typer.echo("The REST port cannot be reached from here, so nobody has checked that it answers.")
            if is_loopback(config.gateway.host):
                typer.echo(f"It listens on {config.gateway.host}, of each machine its own; see gateway.host.")
        case Health.REFUSED:
            typer.echo("It answers callers on its own machines only; gateway.allow_remote_clients opens it to others.")
