"""From what a user writes as a model to a folder on disk."""

import re
from pathlib import Path

from paceline.config.locate import find_shipped
from paceline.errors import ConfigError, ModelUnavailableError
from paceline.modeling.catalogue import CATALOGUE
from paceline.modeling.fetch import cached_model, fetch_model
from paceline.modeling.hub import cached_from_hub, fetch_from_hub
from paceline.modeling.progress import Progress, silent

_HUB_ID = re.compile(r"[A-Za-z0-9][\w.-]*/[\w.-]+")


def resolve_model(source: str, revision: str | None = None, *, progress: Progress = silent) -> Path:
    """Folder of ``source``: a catalogue name, a folder, a shipped drafter, or a hub id, in this order.

    Downloads what is not cached. Raises ModelUnavailableError with what to do.
    """
    entry = CATALOGUE.get(source)
    if entry:
        if revision is not None:
            raise ModelUnavailableError(f"'{source}' has one fixed revision; remove 'revision'.")
        return fetch_model(entry, progress=progress)
    folder = Path(source).expanduser()
    if folder.is_dir():
        if not (folder / "config.json").is_file():
            raise ModelUnavailableError(f"The folder {folder} has no config.json, so it holds no model.")
        return folder.resolve()
    if source.startswith((".", "/", "~")):
        raise ModelUnavailableError(f"There is no folder {folder}.")
    if shipped := _shipped(source):
        return shipped
    if _HUB_ID.fullmatch(source):
        return fetch_from_hub(source, revision)
    raise ModelUnavailableError(
        f"There is no model '{source}'. Use a name ({', '.join(CATALOGUE)}), a folder, or a hub id such as org/name."
    )


def find_model(source: str, revision: str | None = None) -> Path | None:
    """What `resolve_model` gives if nothing has to be downloaded for it; None where it is not on this machine."""
    entry = CATALOGUE.get(source)
    if entry:
        return cached_model(entry)
    folder = Path(source).expanduser()
    if (folder / "config.json").is_file():
        return folder.resolve()
    if shipped := _shipped(source):
        return shipped
    return cached_from_hub(source, revision) if _HUB_ID.fullmatch(source) else None


def _shipped(source: str) -> Path | None:
    """Folder of a drafter that ships with Paceline, such as ``smollm2-135m/eagle``."""
    try:
        folder = find_shipped("models", source)
    except ConfigError:
        return None
    return folder if (folder / "config.json").is_file() else None
