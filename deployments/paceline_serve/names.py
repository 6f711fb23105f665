"""Names and constants of the application's deployments, in one place so that all processes agree."""

from paceline.config.schema import DeploymentConfig

APP_NAME = "paceline"
GATEWAY = "Gateway"
TARGET = "Target"
LIGHT_CPUS = 0.1
"""Logical CPUs of a gateway or drafter replica: for placement, no limit."""


def drafter_deployment(group: str) -> str:
    """Name of the deployment that runs a drafter group."""
    return f"drafter-{group}"


def deployed_groups(config: DeploymentConfig) -> list[str]:
    """Drafter groups that have replicas of their own."""
    return [group for group, section in config.drafters.items() if section.place == "remote" and section.replicas > 0]
