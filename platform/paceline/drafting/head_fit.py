"""Whether draft heads were made for their target, as far as configurations tell: before anything is loaded."""

from collections.abc import Callable
from pathlib import Path

from paceline.config.schema import DeploymentConfig, DrafterConfig
from paceline.drafting.wanted_features import HEAD_METHODS
from paceline.errors import ConfigError
from paceline.modeling.heads.layout import NUM_MODULES, method_of, read_head_config, shape_of

Find = Callable[[str, str | None], Path | None]
"""Folder of a model by name and revision; None where it is not on this machine."""

_SIZES = ("hidden_size", "vocab_size")


def check_heads(config: DeploymentConfig, find: Find) -> list[str]:
    """Raise ConfigError for a group whose head is another method's, or was made for another model.

    Returns the groups with heads that could not be looked at, because their files are not on this machine. Weights
    are checked by whoever loads them.
    """
    heads = {group: section for group, section in config.drafters.items() if section.method in HEAD_METHODS}
    target = find(config.model.source, config.model.revision) if heads else None
    if target is None:
        return list(heads)
    return [group for group, section in heads.items() if not _is_fit(group, section, target, find)]


def _is_fit(group: str, section: DrafterConfig, target: Path, find: Find) -> bool:
    """False where the head is not here; raises if it does not fit."""
    if section.model is None:
        if not read_head_config(target).get(NUM_MODULES):
            raise ConfigError(
                f"Drafter group '{group}': the target in {target} brings no MTP modules ('{NUM_MODULES}' in its "
                "config.json); name those to use as the group's 'model'."
            )
        return True
    folder = find(section.model, section.revision)
    if folder is None:
        return False
    raw, ours = read_head_config(folder), read_head_config(target)
    if (found := method_of(raw)) != section.method:
        raise ConfigError(
            f"Drafter group '{group}' has method {section.method}, but {folder} holds a head for {found}; "
            "change one of both."
        )
    theirs = shape_of(raw)
    for field in _SIZES:
        if field in theirs and theirs[field] != ours.get(field):
            raise ConfigError(
                f"Drafter group '{group}': the head in {folder} is for another model: its '{field}' is "
                f"{theirs[field]}, but the target's is {ours.get(field)}."
            )
    return True
