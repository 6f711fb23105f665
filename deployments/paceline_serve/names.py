"""Names and constants of the applications and deployments, in one place so that all processes agree."""

from paceline.config.schema import DeploymentConfig

APP_NAME = "paceline"
"""The application of gateways and targets. Each remote drafter group is one of its own."""
GATEWAY = "Gateway"
TARGET = "Target"
LIGHT_CPUS = 0.1
"""Logical CPUs of a gateway or drafter replica: for placement, no limit."""
_DRAFTER = "drafter-"
_DRAFTER_APP = f"{APP_NAME}-{_DRAFTER}"


def drafter_deployment(group: str) -> str:
    """Name of the deployment that runs a drafter group."""
    return f"{_DRAFTER}{group}"


def drafter_app(group: str) -> str:
    """Name of the application whose one deployment runs a drafter group."""
    return f"{_DRAFTER_APP}{group}"


def group_of(deployment: str) -> str | None:
    """Drafter group that a deployment runs; None for gateways and targets."""
    return deployment.removeprefix(_DRAFTER) if deployment.startswith(_DRAFTER) else None


def app_of(deployment: str) -> str:
    """Name of the application that a deployment belongs to."""
    return drafter_app(deployment.removeprefix(_DRAFTER)) if deployment.startswith(_DRAFTER) else APP_NAME


def is_ours(application: str) -> bool:
    """Whether an application of a cluster is part of Paceline."""
    return application == APP_NAME or application.startswith(_DRAFTER_APP)


def deployed_groups(config: DeploymentConfig) -> list[str]:
    """Drafter groups that have replicas of their own."""
    return [group for group, section in config.drafters.items() if section.place == "remote" and section.replicas > 0]
