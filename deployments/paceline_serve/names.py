"""Names and constants of the application's deployments, in one place so that all processes agree."""

APP_NAME = "paceline"
GATEWAY = "Gateway"
TARGET = "Target"
LIGHT_CPUS = 0.1
"""Logical CPUs of a gateway or drafter replica: for placement, no limit."""


def drafter_deployment(group: str) -> str:
    """Name of the deployment that runs a drafter group."""
    return f"drafter-{group}"
