"""Finds the configs and models that ship with Paceline, in a wheel or in the repository.

A wheel carries them inside ``paceline_serve/``. An editable install points at the repository, where they
lie beside that package in ``deployments/``.
"""

import difflib
import importlib.util
from pathlib import Path
from typing import Literal

from paceline.errors import ConfigError

ShippedKind = Literal["configs", "models"]


def find_shipped(kind: ShippedKind, name: str) -> Path:
    """Path of a shipped file or folder such as ("configs", "local-cpu.yaml").

    Raises ConfigError that lists the shipped names.
    """
    path = _shipped_folder(kind) / name
    # Names with ".." would reach outside the folder.
    if not path.exists() or not path.resolve().is_relative_to(_shipped_folder(kind).resolve()):
        shipped = shipped_names(kind)
        raise ConfigError(f"Nothing called '{name}' ships in {kind}. {_suggest(name, shipped)}")
    return path


def shipped_names(kind: ShippedKind) -> list[str]:
    """Names of all shipped files and folders of a kind, sorted."""
    folder = _shipped_folder(kind)
    return sorted(path.name for path in folder.iterdir()) if folder.is_dir() else []


def find_config(name_or_path: str) -> Path:
    """Path of a config: a file that exists, or a shipped one by its name with or without ``.yaml``.

    Raises ConfigError that lists the shipped names.
    """
    path = Path(name_or_path).expanduser()
    if path.is_file():
        return path
    if path.is_dir():
        raise ConfigError(f"'{name_or_path}' is a folder. Name a YAML file in it.")
    if path.name != name_or_path:
        raise ConfigError(f"There is no file '{name_or_path}'. Check the path.")
    file_name = name_or_path if path.suffix else f"{name_or_path}.yaml"
    if file_name not in shipped_names("configs"):
        shipped = shipped_names("configs")
        raise ConfigError(f"There is no file '{name_or_path}' and no shipped config. {_suggest(file_name, shipped)}")
    return find_shipped("configs", file_name)


def _shipped_folder(kind: ShippedKind) -> Path:
    # By name: this package sits below paceline_serve and must not import it; find_spec does not run it.
    spec = importlib.util.find_spec("paceline_serve")
    if spec is None or not spec.submodule_search_locations:
        raise ConfigError("The package paceline_serve is not installed. Install Paceline again.")
    package = Path(spec.submodule_search_locations[0])
    inside = package / kind
    return inside if inside.is_dir() else package.parent / kind


def _suggest(name: str, known: list[str]) -> str:
    if close := difflib.get_close_matches(name, known, n=1):
        return f"Did you mean '{close[0]}'?"
    return f"There are: {', '.join(known) or 'none'}."
