"""Reads the configuration file. Every mistake in it is reported at once, by field, with what to do."""

import difflib
from collections.abc import Hashable, Mapping
from pathlib import Path
from typing import Any, get_args, get_origin

import yaml
from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from paceline.config.schema import DeploymentConfig
from paceline.errors import ConfigError


def load_config(path: Path) -> DeploymentConfig:
    """Read and check a YAML file. Raises ConfigError that names the file and every field at fault."""
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise ConfigError(f"There is no file '{path}'. Check the path.") from None
    except OSError as error:
        raise ConfigError(f"'{path}' cannot be read: {error.strerror}.") from error
    except UnicodeDecodeError:
        raise ConfigError(f"'{path}' is not UTF-8 text. Save it as UTF-8.") from None
    try:
        content = yaml.load(text, Loader=_UniqueKeyLoader)  # noqa: S506  # a SafeLoader
    except yaml.YAMLError as error:
        raise ConfigError(f"'{path}' is not valid YAML: {_yaml_problem(error)}.") from error
    except ConfigError as error:
        raise ConfigError(f"'{path}': {error}") from None
    if content is None:
        content = {}
    if not isinstance(content, Mapping):
        raise ConfigError(f"'{path}' must hold 'key: value' pairs at the top, such as 'verifier: coupled'.")
    return config_from_mapping(_with_folders(content, path.absolute().parent), source=str(path))


def config_from_mapping(mapping: Mapping[str, Any], *, source: str = "The configuration") -> DeploymentConfig:
    """Check a parsed configuration. Raises ConfigError that lists every field at fault."""
    try:
        return DeploymentConfig.model_validate(mapping)
    except ValidationError as error:
        lines = [f"  {_field_path(detail['loc'])}: {_sentence(detail)}" for detail in error.errors()]
        count = f"{len(lines)} mistake{'s' if len(lines) > 1 else ''}"
        raise ConfigError("\n".join([f"{source} has {count}:", *lines])) from None


def _with_folders(content: Mapping[str, Any], base: Path) -> Mapping[str, Any]:
    """The content with model folders that lie beside the file named in full; all other models stay as written."""
    model, drafters = content.get("model"), content.get("drafters")
    placed = dict(content)
    if isinstance(model, Mapping):
        placed["model"] = _with_folder(model, "source", base)
    if isinstance(drafters, Mapping):
        placed["drafters"] = {
            name: _with_level_folders(group, base) if isinstance(group, Mapping) else group
            for name, group in drafters.items()
        }
    return placed


def _with_level_folders(group: Mapping[str, Any], base: Path) -> Mapping[str, Any]:
    """A drafter group with its own model's folder, and those of a cascade's levels, named in full."""
    placed, levels = dict(_with_folder(group, "model", base)), group.get("levels")
    if isinstance(levels, list):
        placed["levels"] = [
            _with_folder(level, "model", base) if isinstance(level, Mapping) else level for level in levels
        ]
    return placed


def _with_folder(section: Mapping[str, Any], key: str, base: Path) -> Mapping[str, Any]:
    value = section.get(key)
    if not isinstance(value, str) or not value or not (base / value / "config.json").is_file():
        return section
    return {**section, key: str(base / value)}


class _UniqueKeyLoader(yaml.SafeLoader):
    """Refuses a key that stands twice in one mapping, where YAML would silently keep the last."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Hashable, Any]:
        """Build a mapping; raises ConfigError on a repeated key."""
        seen: set[str] = set()
        for key_node, _ in node.value:
            if not isinstance(key_node, yaml.ScalarNode):
                continue
            if key_node.value in seen:
                line = key_node.start_mark.line + 1
                raise ConfigError(f"the key '{key_node.value}' stands twice, again in line {line}. Remove one.")
            seen.add(key_node.value)
        return super().construct_mapping(node, deep=deep)


def _yaml_problem(error: yaml.YAMLError) -> str:
    if isinstance(error, yaml.MarkedYAMLError) and error.problem_mark:
        return f"line {error.problem_mark.line + 1}: {error.problem}"
    return " ".join(str(error).split())


def _field_path(location: tuple[int | str, ...]) -> str:
    # Keys of a mapping show up in pydantic's location as (name, "[key]").
    parts = [str(part) for part in location if part != "[key]"]
    return ".".join(parts) or "configuration"


def _sentence(detail: ErrorDetails) -> str:
    kind, value = detail["type"], detail["input"]
    if kind == "extra_forbidden":
        return _unknown_key(detail["loc"])
    if value is None:
        return "is empty; give it a value or remove the key"
    message = detail["msg"].removeprefix("Value error, ")
    if kind == "literal_error" and isinstance(value, str):
        return f"{message}, got '{value}'{_did_you_mean(value, _expected_values(detail))}"
    if kind in {"value_error", "missing"}:
        return message
    return f"{message}, got {value!r}"


def _unknown_key(location: tuple[int | str, ...]) -> str:
    section = _section_at(location[:-1])
    known = list(section.model_fields) if section else []
    key = str(location[-1])
    if hint := _did_you_mean(key, known):
        return f"unknown key{hint}"
    return f"unknown key; known keys: {', '.join(known)}"


def _did_you_mean(value: str, known: list[str]) -> str:
    close = difflib.get_close_matches(value, known, n=1, cutoff=0.5)
    return f"; did you mean '{close[0]}'?" if close else ""


def _expected_values(detail: ErrorDetails) -> list[str]:
    expected = str(detail.get("ctx", {}).get("expected", ""))
    return [part.strip("' ") for part in expected.replace(" or ", ", ").split(",")]


def _section_at(location: tuple[int | str, ...]) -> type[BaseModel] | None:
    """The section that lies at a path; the names of drafter groups and the places of levels are part of the path."""
    annotation: Any = DeploymentConfig
    for part in location:
        if get_origin(annotation) is dict:
            annotation = get_args(annotation)[1]
        elif get_origin(annotation) is tuple:
            annotation = get_args(annotation)[0]
        elif isinstance(annotation, type) and issubclass(annotation, BaseModel) and part in annotation.model_fields:
            annotation = annotation.model_fields[str(part)].annotation
        else:
            return None
    return annotation if isinstance(annotation, type) and issubclass(annotation, BaseModel) else None
