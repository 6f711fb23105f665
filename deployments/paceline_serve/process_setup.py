"""Threads and logs of a replica's process."""

from collections.abc import Mapping
from typing import Any

from ray.util import get_node_ip_address

from paceline.telemetry.logging_setup import configure_logging


def actor_options(
    *, num_cpus: float, threads: int, num_gpus: float = 0.0, resources: Mapping[str, float] | None = None
) -> dict[str, Any]:
    """Ray options of a replica that computes with ``threads`` threads; ``resources`` are custom ones.

    OpenMP threads that spin while they wait cost up to 20x where cores are shared, so they sleep. The
    variables must be there before the process imports torch, hence the runtime environment.
    """
    env_vars = {"OMP_NUM_THREADS": str(threads), "OMP_WAIT_POLICY": "PASSIVE", "KMP_BLOCKTIME": "0"}
    return {
        "num_cpus": num_cpus,
        "num_gpus": num_gpus,
        "resources": dict(resources or {}),
        "runtime_env": {"env_vars": env_vars},
    }


def node_address() -> str:
    """Address of this machine inside the Ray cluster; 127.0.0.1 where the cluster was started so."""
    return str(get_node_ip_address())  # type: ignore[no-untyped-call]


def start_logging(level: str) -> None:
    """Send our log lines to the process's standard error, which Ray keeps in a file per worker."""
    configure_logging(level)
