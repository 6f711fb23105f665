"""What reaches running replicas as Ray Serve's ``user_config``: the tunables, and for targets the remote groups."""

from collections.abc import Mapping
from typing import Any

from paceline.config.schema import DeploymentConfig, Tunables
from paceline_serve.names import deployed_groups

_REMOTE_GROUPS = "remote_groups"


def target_settings(config: DeploymentConfig) -> dict[str, Any]:
    """A target's ``user_config``: the tunables, with the method of each deployed group beside them."""
    methods = {group: config.drafters[group].method for group in deployed_groups(config)}
    return {**config.tunables.model_dump(mode="json"), _REMOTE_GROUPS: methods}


def split_target_settings(user_config: Mapping[str, Any]) -> tuple[Tunables, dict[str, str]]:
    """Tunables, and methods by group."""
    fields = dict(user_config)
    groups = fields.pop(_REMOTE_GROUPS, {})
    return Tunables.model_validate(fields), dict(groups)
