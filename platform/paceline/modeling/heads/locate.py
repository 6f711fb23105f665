"""From what a user writes as a draft head to a folder on disk."""

from pathlib import Path

from paceline.config.locate import find_shipped
from paceline.errors import ConfigError
from paceline.modeling.resolve import resolve_model


def head_folder(name: str, revision: str | None = None) -> Path:
    """Folder of a head that ships with Paceline, such as ``smollm2-135m/eagle``, or else as `resolve_model` says."""
    try:
        shipped = find_shipped("models", name)
    except ConfigError:
        return resolve_model(name, revision)
    return shipped if (shipped / "config.json").is_file() else resolve_model(name, revision)
