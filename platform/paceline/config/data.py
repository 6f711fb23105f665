"""Data files that are too large for the repository: prompts and text to measure and train on."""

import os
from pathlib import Path

from paceline.errors import ConfigError


def data_file(name: str) -> Path:
    """A file in the folder that ``PACELINE_DATA`` names. Raises ConfigError if there is none."""
    folder = os.environ.get("PACELINE_DATA")
    if not folder:
        raise ConfigError(f"'{name}' is needed: set PACELINE_DATA to the folder that holds it.")
    path = Path(folder).expanduser() / name
    if not path.is_file():
        raise ConfigError(f"'{name}' is not in {folder}, the folder that PACELINE_DATA names.")
    return path
