"""Looks at a fleet: asks Ray Serve and every replica, in bounded time."""

from typing import TYPE_CHECKING

from paceline.rpc.replica_client import read_statuses
from paceline.rpc.replica_status import ReplicaStatus, SpeculationSwitch
from paceline_serve.attached_serve import AttachedServe
from paceline_serve.fleet_status import FleetStatus, fleet_status
from paceline_serve.names import APP_NAME, GATEWAY, TARGET

if TYPE_CHECKING:
    from ray.serve.schema import ServeApplicationSchema

ANSWER_WITHIN_S = 0.5  # a replica's own status; it answers from memory
_RUNNING = "RUNNING"
_NO_ADDRESS = "Ray Serve has not told its address yet"


def look(serve: AttachedServe, *, within_s: float = ANSWER_WITHIN_S) -> FleetStatus:
    """The fleet at this moment. Raises SetupError where Ray Serve says nothing."""
    details = serve.details()
    states = {
        name: {replica["replica_id"]: replica["state"] for replica in deployment["replicas"]}
        for application in details.values()
        for name, deployment in application["deployments"].items()
    }
    running = {
        name: [replica_id for replica_id, state in found.items() if state == _RUNNING] for name, found in states.items()
    }
    endpoints = serve.endpoints(running)
    present = {replica_id for found in states.values() for replica_id in found}
    statuses: dict[str, ReplicaStatus | str] = {
        replica_id: _NO_ADDRESS for ids in running.values() for replica_id in ids if replica_id not in endpoints
    }
    statuses |= read_statuses(
        [endpoint for replica_id, endpoint in endpoints.items() if replica_id in present], within_s=within_s
    )
    return fleet_status(details, statuses, switch_of(serve.deployed().get(APP_NAME)))


def switch_of(application: "ServeApplicationSchema | None") -> SpeculationSwitch | None:
    """What an application's configuration says of speculation; None where it says nothing."""
    deployments = application.deployments if application else []
    for deployment in deployments:
        settings = deployment.user_config
        if deployment.name in {GATEWAY, TARGET} and isinstance(settings, dict) and "speculation_enabled" in settings:
            return SpeculationSwitch(settings["speculation_enabled"], frozenset(settings.get("disabled_groups", ())))
    return None
