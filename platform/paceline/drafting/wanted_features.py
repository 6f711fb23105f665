"""Which features a target has to keep for the drafter groups of its deployment."""

from paceline.config.schema import DeploymentConfig, DrafterConfig

LAST = "last"
HEAD_METHODS = frozenset({"medusa", "eagle", "mtp"})


def wanted_features(config: DeploymentConfig) -> tuple[str, ...]:
    """``engine.features``, or what the groups need where that says nothing: `last`, and names of EAGLE-3 heads.

    Groups in other processes count: a target is not told of those. Raises SetupError kinds where a head is not there.
    """
    if config.engine.features is not None:
        return config.engine.features
    named = [_feature_of(section) for section in config.drafters.values() if section.method in HEAD_METHODS]
    return tuple(dict.fromkeys(named))


def _feature_of(section: DrafterConfig) -> str:
    if section.method != "eagle" or section.model is None:
        return LAST
    # Torch takes seconds to import; deployments without such a group never need it.
    from paceline.modeling.heads.checkpoint import is_eagle3  # noqa: PLC0415
    from paceline.modeling.heads.head_tensors import read_head_config  # noqa: PLC0415
    from paceline.modeling.heads.locate import head_folder  # noqa: PLC0415

    folder = head_folder(section.model, section.revision)
    return section.model if is_eagle3(read_head_config(folder)) else LAST
