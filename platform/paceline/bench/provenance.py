"""Where a result comes from: machine, versions, commit, settings, seed, command."""

import os
import platform
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import psutil
import torch

import paceline

_PACKAGES = ("torch", "transformers", "ray", "numpy", "grpcio", "httpx")
_SECRET_FLAGS = ("--api-key",)


@dataclass(frozen=True, slots=True)
class Provenance:
    """What somebody needs to repeat a measurement, and to judge whether it can be compared with another."""

    taken_at: str  # UTC, ISO 8601
    machine: Mapping[str, Any]
    versions: Mapping[str, str]
    source: str  # commit of a checkout, with "-dirty" where files were changed; or "release VERSION"
    config: Mapping[str, Any]  # settings of what was measured, as far as it tells them
    seed: int
    command: str


def collect_provenance(*, config: Mapping[str, Any], seed: int, argv: Sequence[str] | None = None) -> Provenance:
    """Look at this process and its machine; call it before the measurement, as it notes the load then."""
    return Provenance(
        taken_at=datetime.now(UTC).isoformat(timespec="seconds"),
        machine=_machine(),
        versions={"paceline": paceline.__version__, "python": platform.python_version(), **_versions()},
        source=source_state(Path(paceline.__file__).parent),
        config=config,
        seed=seed,
        command=command_line(sys.argv if argv is None else argv),
    )


def source_state(folder: Path) -> str:
    """Commit of the checkout that ``folder`` lies in, or the release that it was installed from."""
    commit = _git(folder, "rev-parse", "HEAD")
    # A package inside some other project's checkout, such as a virtual environment there, is a release.
    if not commit or _git(folder, "ls-files", "--error-unmatch", "__init__.py") is None:
        return f"release {paceline.__version__}"
    return commit + ("-dirty" if _git(folder, "status", "--porcelain") else "")


def command_line(argv: Sequence[str]) -> str:
    """The command as typed, without secrets and without the folder of the program."""
    words = [Path(argv[0]).name]
    hide = False
    for word in argv[1:]:
        flag, separator, _ = word.partition("=")
        if hide or (flag in _SECRET_FLAGS and separator):
            words.append(f"{flag}=***" if separator and not hide else "***")
        else:
            words.append(word)
        hide = word in _SECRET_FLAGS
    return " ".join(words)


def _machine() -> dict[str, Any]:
    machine: dict[str, Any] = {
        "system": f"{platform.system()} {platform.release()}",
        "architecture": platform.machine(),
        "cpu": _cpu_model(),
        "cores": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count(),
        "memory_gib": round(psutil.virtual_memory().total / 2**30, 1),
        "load_before": round(os.getloadavg()[0], 2),
        "omp": {name: os.environ[name] for name in sorted(os.environ) if name.startswith(("OMP_", "GOMP_", "KMP_"))},
    }
    if torch.cuda.is_available():
        machine["gpus"] = [torch.cuda.get_device_name(index) for index in range(torch.cuda.device_count())]
    return machine


def _cpu_model() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text("utf-8").splitlines()
    except OSError:
        lines = []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith(("model name", "Model"))]
    return names[0] if names else platform.processor() or "unknown"


def _versions() -> dict[str, str]:
    found = {}
    for name in _PACKAGES:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            found[name] = "not installed"
    return found


def _git(folder: Path, *arguments: str) -> str | None:
    """Output of a git command; None where git, or a checkout, is missing."""
    try:
        done = subprocess.run(  # noqa: S603 - fixed arguments, read only
            ["git", "-C", str(folder), *arguments],  # noqa: S607 - whichever git the user has
            capture_output=True,
            text=True,
            check=True,
            timeout=30,
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout.strip()
