"""Ray Serve on a Ray that runs already, as a command beside it sees it."""

import logging
import os
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from paceline.errors import ConfigError, SetupError
from paceline.rpc.endpoint import Endpoint
from paceline.rpc.loopback import is_loopback
from paceline_serve.names import APP_NAME, app_of, is_ours
from paceline_serve.nodes_here import RayNode, node_for, nodes_here
from paceline_serve.ray_access import check_access, own_token

if TYPE_CHECKING:
    from ray.serve._private.client import ServeControllerClient
    from ray.serve.schema import ServeApplicationSchema

_ANSWER_WITHIN_S = 5.0  # of the controller; it answers from memory
_MEMBERS_WITHIN_S = 5.0  # for Ray Serve's push; what is not known by then is looked at without
_POLL_S = 0.02


class AttachedServe:
    """Paceline on the Ray that this process is attached to. Use `attached` to get one."""

    def __init__(self, client: "ServeControllerClient") -> None:
        self._client = client
        self._endpoints: dict[str, Endpoint] = {}  # by replica id; a replica that leaves answers for a while

    def details(self) -> dict[str, Any]:
        """Ray Serve's account of our applications, by name. Raises SetupError if there is none."""
        details = self._ask(self._client._controller.get_serve_instance_details.remote())  # noqa: SLF001
        ours = {name: application for name, application in details["applications"].items() if is_ours(name)}
        if APP_NAME not in ours:
            raise SetupError("Paceline does not run on this Ray. `paceline serve CONFIG --address` deploys it.")
        return ours

    def endpoints(self, running: Mapping[str, Collection[str]]) -> dict[str, Endpoint]:
        """Where replicas serve their peers, by id. ``running`` has the ids of running replicas by deployment.

        Those of a replica that has left are kept: it answers until its process ends.
        """
        from ray import serve  # noqa: PLC0415  # Ray reads its environment at import

        from paceline_serve.membership import MEMBERSHIP  # noqa: PLC0415
        from paceline_serve.peer_metadata import endpoints_of  # noqa: PLC0415
        from paceline_serve.router_start import start_router  # noqa: PLC0415

        for deployment in running:
            start_router(serve.get_deployment_handle(deployment, app_of(deployment), _check_exists=False))
        wanted = {replica_id for ids in running.values() for replica_id in ids}
        give_up_at = time.monotonic() + _MEMBERS_WITHIN_S
        while True:
            for deployment in running:
                members = endpoints_of(MEMBERSHIP.replicas(deployment))
                self._endpoints.update({endpoint.replica_id: endpoint for endpoint in members})
            if wanted <= self._endpoints.keys() or time.monotonic() > give_up_at:
                return dict(self._endpoints)
            time.sleep(_POLL_S)

    def deployed(self) -> "dict[str, ServeApplicationSchema]":
        """The configuration that every application of the cluster was last deployed with, by name."""
        found: dict[str, ServeApplicationSchema] = self._ask(self._client._controller.get_app_configs.remote())  # noqa: SLF001
        return found

    def deploy(self, applications: "Mapping[str, ServeApplicationSchema]") -> None:
        """Make these the applications of the cluster; what is the same stays as it is."""
        from ray.serve.schema import ServeDeploySchema  # noqa: PLC0415

        capacity = self._ask(self._client._controller.get_serve_instance_details.remote()).get("target_capacity")  # noqa: SLF001
        self._client.deploy_apps(ServeDeploySchema(applications=list(applications.values()), target_capacity=capacity))

    def _ask(self, reply: Any) -> Any:
        import ray  # noqa: PLC0415

        try:
            return ray.get(reply, timeout=_ANSWER_WITHIN_S)
        except ray.exceptions.GetTimeoutError:
            raise SetupError(
                f"Ray Serve's controller has not answered for {_ANSWER_WITHIN_S:g} s. Answers that run go on meanwhile."
            ) from None
        except ray.exceptions.RayActorError as error:
            raise SetupError("Ray Serve's controller has just died; Ray restarts it. Try again.") from error


@contextmanager
def attached(address: str | None) -> Iterator[AttachedServe]:
    """Attach to a Ray, for the length of the block. Raises SetupError with what to do where that fails.

    ``address`` is HOST:PORT of its GCS; None: what RAY_ADDRESS says, or the Ray of this machine.
    """
    node = _node(address)
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    if is_loopback(node.address):
        # Ray would replace loopback addresses by one that other machines reach, where this one does not listen.
        os.environ["RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER"] = "0"
    token = own_token()
    check_access(node.gcs, token)
    if token is not None:
        os.environ.setdefault("RAY_AUTH_MODE", "token")  # Ray's client shows a token only if told to
    # Threads of Ray Serve that outlive the block would start a client of their own otherwise.
    os.environ["RAY_ENABLE_AUTO_CONNECT"] = "0"
    import ray  # noqa: PLC0415

    _connect(node)
    try:
        from ray.serve.context import _get_global_client  # noqa: PLC0415

        # A command's output is its own. The other one reports questions to replicas that nobody waits for at the end.
        for name in ("ray.serve", "asyncio"):
            logging.getLogger(name).setLevel(logging.CRITICAL)
        client = _get_global_client(raise_if_no_controller_running=False)
        if client is None:
            raise SetupError(
                f"Ray Serve does not run on the Ray at {node.gcs}. `paceline serve CONFIG --address` deploys Paceline."
            )
        yield AttachedServe(client)
    finally:
        ray.shutdown()


def _connect(node: RayNode) -> None:
    import ray  # noqa: PLC0415

    try:
        ray.init(address=node.gcs, logging_level=logging.CRITICAL, log_to_driver=False, _node_ip_address=node.address)
    except Exception as error:  # what Ray raises has many types and many lines
        raise SetupError(f"Could not attach to the Ray at {node.gcs}: {_first_line(error)}") from error


def _node(address: str | None) -> RayNode:
    """The node of this machine through which to attach."""
    nodes = nodes_here()
    wanted = address or os.environ.get("RAY_ADDRESS") or "auto"
    if wanted == "auto":
        wanted = _only_ray(nodes)
    _check_form(wanted)
    node = node_for(wanted, nodes)
    if node is None:
        check_access(wanted, own_token())
        raise SetupError(
            f"The Ray at {wanted} has no node on this machine. Run the command on a machine of the cluster."
        )
    return node


def _only_ray(nodes: Sequence[RayNode]) -> str:
    """GCS of the one Ray of this machine."""
    found = sorted({node.gcs for node in nodes})
    if not found:
        raise SetupError(
            "No Ray runs on this machine. Run the command on a machine of the cluster, or name one with "
            "--address HOST:PORT."
        )
    if len(found) > 1:
        raise SetupError(f"Several Rays run on this machine: {', '.join(found)}. Name one with --address.")
    return found[0]


def _check_form(address: str) -> None:
    if "://" in address:
        raise ConfigError(
            f"'{address}' is the address of a REST API or of a Ray client. Give HOST:PORT of the cluster's GCS, such "
            "as 127.0.0.1:6379, on a machine of the cluster."
        )
    parts = urlsplit(f"//{address}")
    try:
        host, port = parts.hostname, parts.port
    except ValueError:
        host, port = None, None
    if not host or not port:
        raise ConfigError(f"'{address}' is no address of a Ray; it looks like 127.0.0.1:6379.")


def _first_line(error: Exception) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return (lines[0] if lines else type(error).__name__)[:300].rstrip(".") + "."
