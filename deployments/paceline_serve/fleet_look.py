"""Looks at a fleet: asks Ray Serve and every replica, in bounded time."""

from paceline.rpc.replica_client import read_statuses
from paceline.rpc.replica_status import SpeculationSwitch
from paceline_serve.attached_serve import AttachedServe
from paceline_serve.fleet_status import FleetStatus, fleet_status
from paceline_serve.names import APP_NAME, GATEWAY, TARGET

ANSWER_WITHIN_S = 0.5  # a replica's own status; it answers from memory


def look(serve: AttachedServe, *, within_s: float = ANSWER_WITHIN_S) -> FleetStatus:
    """The fleet at this moment. Raises SetupError where Ray Serve says nothing."""
    details = serve.details()
    found = {
        name: [replica["state"] for replica in deployment["replicas"]]
        for application in details.values()
        for name, deployment in application["deployments"].items()
    }
    endpoints = serve.endpoints({name: states.count("RUNNING") for name, states in found.items()})
    present = {
        replica["replica_id"]
        for application in details.values()
        for deployment in application["deployments"].values()
        for replica in deployment["replicas"]
    }
    statuses = read_statuses(
        [endpoint for replica_id, endpoint in endpoints.items() if replica_id in present], within_s=within_s
    )
    return fleet_status(details, statuses, deployed_switch(serve))


def deployed_switch(serve: AttachedServe) -> SpeculationSwitch | None:
    """What the deployed configuration says of speculation; None where it says nothing."""
    application = serve.deployed().get(APP_NAME)
    deployments = application.deployments if application else []
    for deployment in deployments:
        settings = deployment.user_config
        if deployment.name in {GATEWAY, TARGET} and isinstance(settings, dict) and "speculation_enabled" in settings:
            return SpeculationSwitch(settings["speculation_enabled"], frozenset(settings.get("disabled_groups", ())))
    return None
