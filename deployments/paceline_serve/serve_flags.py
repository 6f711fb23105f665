"""Flags of ``paceline serve`` laid over a configuration."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from paceline.config.load import config_from_mapping
from paceline.config.locate import find_shipped
from paceline.config.schema import METHOD_OPTIONS, DeploymentConfig, is_outside_class
from paceline.drafting.wanted_features import HEAD_METHODS
from paceline.errors import ConfigError

_NO_DRAFTER = "none"


@dataclass(frozen=True, slots=True)
class ServeFlags:
    """What the command line says; None leaves the configuration's value."""

    model: str | None = None  # name, folder or hub id
    revision: str | None = None  # of a hub id
    drafter: str | None = None  # METHOD[:MODEL], package.module:Class, or "none"
    engine: str | None = None
    http_port: int | None = None
    grpc_port: int | None = None


def with_flags(config: DeploymentConfig, flags: ServeFlags) -> DeploymentConfig:
    """The configuration with the flags in force. Raises ConfigError where they do not make sense."""
    content: dict[str, Any] = config.model_dump()
    if flags.model is not None:
        content["model"] |= {"source": absolute_source(flags.model), "name": None, "revision": None}
    if flags.revision is not None:
        content["model"]["revision"] = flags.revision
    if flags.drafter is not None:
        content["drafters"] = _drafters(flags.drafter, content["model"]["source"])
    if flags.engine is not None:
        content["engine"]["kind"] = flags.engine
    if flags.http_port is not None:
        content["gateway"]["http_port"] = flags.http_port
    if flags.grpc_port is not None:
        content["gateway"]["grpc_port"] = flags.grpc_port
    return config_from_mapping(content, source="The command line")


def absolute_source(source: str) -> str:
    """A folder as an absolute path: replicas have another working directory. Names and hub ids stay."""
    folder = Path(source).expanduser()
    return str(folder.resolve()) if folder.is_dir() else source


def check_sources_elsewhere(flags: ServeFlags) -> None:
    """Raise ConfigError where a flag names a folder by a path that means nothing on other machines."""
    model_of_drafter = (flags.drafter or "").partition(":")[2]  # or a class, which is no path
    for flag, source in (("--model", flags.model), ("--drafter", model_of_drafter)):
        if source and not Path(source).is_absolute() and (Path(source).expanduser().is_dir() or source[0] in ".~"):
            raise ConfigError(f"{flag} {source}: with --address, name the folder by its full path on the cluster.")


def folders_of(config: DeploymentConfig) -> list[str]:
    """Model folders that the configuration names; they must exist wherever a replica runs."""
    sources = [config.model.source, *(section.model for section in config.drafters.values() if section.model)]
    return [source for source in dict.fromkeys(sources) if Path(source).is_absolute()]


def _drafters(flag: str, target: str) -> Mapping[str, Any]:
    """The only group. Without a model, the drafter that ships for ``target``, if there is one."""
    method, _, model = flag.partition(":")
    method = method.replace("-", "_")
    if method == _NO_DRAFTER and not model:
        return {}
    if method not in METHOD_OPTIONS and is_outside_class(flag):
        return {model.lower().replace("_", "-"): {"method": flag}}
    section: dict[str, Any] = {"method": method}
    if method in HEAD_METHODS:
        section["place"] = "in_process"  # features need no link there, and the target's weights are at hand
    if model:
        section["model"] = absolute_source(model)
    elif _ships(shipped := f"{target}/{method}"):
        section["model"] = shipped
    return {method.replace("_", "-"): section}


def _ships(model: str) -> bool:
    try:
        return (find_shipped("models", model) / "config.json").is_file()
    except ConfigError:
        return False
