"""Names of the application and its deployments, in one place so that all processes agree."""

APP_NAME = "paceline"
GATEWAY = "Gateway"
TARGET = "Target"


def drafter_deployment(group: str) -> str:
    """Name of the deployment that runs a drafter group."""
    return f"drafter-{group}"
