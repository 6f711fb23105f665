"""The checks of ``paceline doctor``. Each looks at one thing and says what to do about it."""

import os
import platform
import shutil
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import psutil

from paceline.config.cache import cache_dir
from paceline.config.schema import GatewayConfig, PeerConfig
from paceline.kernels.compiled import kernels_in_use
from paceline.rpc.free_port import port_is_free

_GIB = 2**30
_MEMORY_WANTED = 4 * _GIB  # what local-cpu.yaml is made for
_MEMORY_LEAST = 2 * _GIB
_SHM_WANTED = 200 * 2**20  # object store of a local Ray, with some room
_DISK_WANTED = 2 * _GIB  # the demo model, its download and its converted copy
_PEER_PORTS_WANTED = 8
_RAY_SERIES = "2.60"
_SMALL_KERNEL = "token_noise"


class Status(Enum):
    """Outcome of a check; only FAIL makes the command fail."""

    OK = "ok"
    WARN = "warn"
    FAIL = "fail"


@dataclass(frozen=True, slots=True)
class Check:
    """One finding."""

    name: str
    status: Status
    found: str
    advice: str = ""  # what to do; empty when all is well


def run_checks() -> list[Check]:
    """Run all checks, in the order in which they are worth mending."""
    checks: Sequence[Callable[[], Check]] = (
        check_python,
        check_torch,
        check_device,
        check_compiler,
        check_cpus,
        check_memory,
        check_shared_memory,
        check_ports,
        check_ray,
        check_cache,
    )
    return [check() for check in checks]


def check_python(running: tuple[int, ...] = sys.version_info[:3]) -> Check:
    """The interpreter is 3.11 or newer."""
    found = ".".join(str(part) for part in running)
    if running < (3, 11):
        return Check("python", Status.FAIL, found, "Install Python 3.11 or newer and make the environment again.")
    return Check("python", Status.OK, found)


def check_torch() -> Check:
    """Torch can be imported; its version, threads and bfloat16 support."""
    try:
        import torch  # noqa: PLC0415  # seconds to import; only this command and this check need it
    except ImportError as error:
        return Check("torch", Status.FAIL, f"cannot be imported: {error}", "Run `make setup`, or see docs/install.md.")
    capability = torch.backends.cpu.get_cpu_capability()
    fast_bfloat16 = any(value for key, value in torch.cpu.get_capabilities().items() if key.endswith("bf16"))
    found = f"{torch.__version__}, {torch.get_num_threads()} threads, {capability}, bfloat16 "
    return Check("torch", Status.OK, found + ("in hardware" if fast_bfloat16 else "emulated"))


def check_device() -> Check:
    """What the models can run on."""
    try:
        import torch  # noqa: PLC0415  # as above
    except ImportError:
        return Check("device", Status.FAIL, "unknown without torch", "Install torch first.")
    if torch.cuda.is_available():
        names = [torch.cuda.get_device_name(index) for index in range(torch.cuda.device_count())]
        return Check("device", Status.OK, f"cuda: {', '.join(names)}")
    if Path("/dev/nvidia0").exists():
        advice = "Install a CUDA build of torch (TORCH=cu130 make setup) and a driver that it supports."
        return Check("device", Status.WARN, "an NVIDIA GPU that torch cannot use; cpu is used", advice)
    return Check("device", Status.OK, "cpu")


def check_compiler() -> Check:
    """Kernels can be compiled: tried on the smallest one, which is kept."""
    try:
        import torch  # noqa: F401, PLC0415  # as above; the kernel shares its OpenMP runtime
    except ImportError:
        return Check("compiler", Status.WARN, "unknown without torch", "Install torch first.")
    if kernels_in_use(_SMALL_KERNEL) != "compiled":
        advice = "Passes on CPU are about three times as fast with gcc or clang and its OpenMP runtime; install one."
        return Check("compiler", Status.WARN, "none that works; torch serves instead", advice)
    return Check("compiler", Status.OK, "kernels can be compiled")


def check_cpus() -> Check:
    """Cores that this process may use."""
    count = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else (os.cpu_count() or 1)
    found = f"{count} core{'s' if count > 1 else ''}, {platform.machine()}"
    if count < 2:
        advice = "Two cores are the least on which target and drafter run side by side without slowing each other."
        return Check("cpus", Status.WARN, found, advice)
    return Check("cpus", Status.OK, found)


def check_memory(available_bytes: int | None = None) -> Check:
    """Memory that is left, within the limit of the control group."""
    left = available_memory() if available_bytes is None else available_bytes
    found = f"{left / _GIB:.1f} GiB available"
    if left < _MEMORY_LEAST:
        return Check("memory", Status.FAIL, found, "Free some memory: local-cpu.yaml needs up to 4 GiB.")
    if left < _MEMORY_WANTED:
        return Check("memory", Status.WARN, found, "local-cpu.yaml needs up to 4 GiB; close other programs.")
    return Check("memory", Status.OK, found)


def available_memory(control_group: Path = Path("/sys/fs/cgroup")) -> int:
    """Bytes that can still be allocated: what the system has, or what the control group leaves."""
    left = int(psutil.virtual_memory().available)
    limit, used = _read_number(control_group / "memory.max"), _read_number(control_group / "memory.current")
    if limit is not None and used is not None:
        left = min(left, max(0, limit - used))
    return left


def check_shared_memory(folder: Path = Path("/dev/shm")) -> Check:  # noqa: S108  # looked at, not written to
    """Room for Ray's object store."""
    if not folder.is_dir():
        return Check("shared memory", Status.OK, "not used on this system")
    free = shutil.disk_usage(folder).free
    found = f"{free / 2**20:.0f} MiB free in {folder}"
    if free < _SHM_WANTED:
        advice = "Ray falls back to slower files. In a container, start it with --shm-size=512m."
        return Check("shared memory", Status.WARN, found, advice)
    return Check("shared memory", Status.OK, found)


def check_ports() -> Check:
    """The doors' default ports and some of the peer range are free."""
    doors = {"--http-port": GatewayConfig().http_port, "--grpc-port": GatewayConfig().grpc_port}
    busy = {flag: port for flag, port in doors.items() if not port_is_free(port)}
    if busy:
        found = ", ".join(f"{port} is busy" for port in busy.values())
        return Check("ports", Status.WARN, found, f"Choose others with {' and '.join(busy)}, or stop what uses them.")
    peer = PeerConfig()
    num_free = sum(port_is_free(port) for port in range(peer.port_min, peer.port_min + 2 * _PEER_PORTS_WANTED))
    found = f"{' and '.join(str(port) for port in doors.values())} are free; replicas use {peer.port_min} onwards"
    if num_free < _PEER_PORTS_WANTED:
        advice = "Many ports of that range are busy; set peer.port_min and peer.port_max to another one."
        return Check("ports", Status.WARN, found, advice)
    return Check("ports", Status.OK, found)


def check_ray() -> Check:
    """Ray is installed in the series that Paceline is made for; it is not imported."""
    try:
        found = version("ray")
    except PackageNotFoundError:
        return Check("ray", Status.FAIL, "not installed", "Run `make setup`, or install ray[serve].")
    if not found.startswith(f"{_RAY_SERIES}."):
        return Check("ray", Status.WARN, found, f"Paceline is made for Ray {_RAY_SERIES}; install that series.")
    return Check("ray", Status.OK, found)


def check_cache(folder: Path | None = None) -> Check:
    """Models can be kept in the cache."""
    folder = folder or cache_dir()
    existing = next(path for path in (folder, *folder.absolute().parents) if path.exists())
    free = shutil.disk_usage(existing).free
    found = f"{free / _GIB:.1f} GiB free for {folder}"
    if not os.access(existing, os.W_OK):
        return Check("cache", Status.FAIL, f"{existing} cannot be written to", "Set PACELINE_CACHE to another folder.")
    if free < _DISK_WANTED:
        return Check("cache", Status.WARN, found, "Free some space, or set PACELINE_CACHE to another disk.")
    return Check("cache", Status.OK, found)


def _read_number(file: Path) -> int | None:
    try:
        return int(file.read_text())
    except (OSError, ValueError):  # no such control group, or "max"
        return None
