"""A Ray of our own on this machine, and nothing of it left behind."""

import contextlib
import logging
import os
import signal
import threading
import time
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import psutil

from paceline_serve.signals import signals_ignored

logger = logging.getLogger(__name__)

_OBJECT_STORE_BYTES = 100 * 2**20  # handles carry keys and settings only
_PLENTY = 1e6  # of what tells nodes apart, where there is one node
_EXIT_WAIT_S = 10.0
_POLL_S = 0.05
_MAX_GRPC_MESSAGE_BYTES = 8 * 2**20
_ENVIRONMENT = {
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_AUTH_MODE": "token",
    "RAY_SERVE_GRPC_MAX_MESSAGE_SIZE": str(_MAX_GRPC_MESSAGE_BYTES),
    # Off, Ray binds the loopback address alone, as it does by default where it supports one machine only.
    "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0",
    # Ray would start one idle Python process per core at once.
    "RAY_prestart_worker_first_driver": "0",
    "RAY_enable_worker_prestart": "0",
}


def set_ray_environment() -> None:
    """Set Ray's environment variables, without touching what the user has set.

    Ray reads them while it is imported, and hands them to all its processes, so this comes before any import.
    """
    for name, value in _ENVIRONMENT.items():
        os.environ.setdefault(name, value)


class LocalRay:
    """Starts Ray's processes as children of this one. Only one at a time in a process."""

    def __init__(self, *, num_cpus: int, resources: Iterable[str] = ()) -> None:
        """``num_cpus`` is logical: what replicas may take in all, not what the machine has.

        ``resources`` are names of custom ones, which this Ray has in plenty.
        """
        self._num_cpus = num_cpus
        self._resources = dict.fromkeys(resources, _PLENTY)
        self._children: dict[int, psutil.Process] = {}  # by pid

    def start(self) -> None:
        """Start a fresh Ray on the loopback address; a running one is never joined."""
        set_ray_environment()
        import ray  # noqa: PLC0415

        on_sigterm = signal.getsignal(signal.SIGTERM)
        ray.init(
            address="local",
            num_cpus=self._num_cpus,
            resources=self._resources,
            include_dashboard=False,
            object_store_memory=_OBJECT_STORE_BYTES,
            log_to_driver=False,
            logging_level=logging.ERROR,
            _node_ip_address="127.0.0.1",
        )
        if threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGTERM, on_sigterm)  # Ray's own handler ends the process without clean-up

    def processes(self) -> list[psutil.Process]:
        """Everything that was started and still runs."""
        for process in psutil.Process().children(recursive=True):
            self._children.setdefault(process.pid, process)
        return [process for process in list(self._children.values()) if is_alive(process)]

    def log_folder(self) -> Path | None:
        """Where the processes write their logs."""
        import ray  # noqa: PLC0415

        node: Any = ray._private.worker._global_node  # noqa: SLF001  # no public way to it
        return None if node is None else Path(node.get_logs_dir_path())

    def stop(self) -> None:
        """End Ray and every process that it started; returns when all are gone, whatever signals come."""
        with signals_ignored():
            self._stop()

    def _stop(self) -> None:
        import ray  # noqa: PLC0415

        children = self.processes()
        ray.shutdown()
        for process in _wait_ended(children):
            logger.warning("process %s did not end and is killed", process.pid)
            with contextlib.suppress(psutil.NoSuchProcess):
                process.kill()
        _wait_ended(children)
        psutil.wait_procs(children, timeout=0)  # takes the exit codes of our own children


def is_alive(process: psutil.Process) -> bool:
    """Whether a process still runs. One that has ended may stay as a zombie if its parent does not ask for it."""
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def _wait_ended(processes: Sequence[psutil.Process]) -> list[psutil.Process]:
    """Wait a while for processes to end; returns those that did not."""
    give_up_at = time.monotonic() + _EXIT_WAIT_S
    while (alive := [process for process in processes if is_alive(process)]) and time.monotonic() < give_up_at:
        time.sleep(_POLL_S)
    return alive
