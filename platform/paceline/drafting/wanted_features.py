"""Which features a target has to keep for the drafter groups of its deployment."""

from pathlib import Path

from paceline.config.schema import DeploymentConfig, DrafterConfig

LAST = "last"
HEAD_METHODS = frozenset({"medusa", "eagle", "mtp"})
BORROWING_METHODS = HEAD_METHODS | {"draft_model", "cascade"}  # may take tensors and the tokenizer of the target


def wanted_features(config: DeploymentConfig) -> tuple[str, ...]:
    """``engine.features``, or what the groups need where that says nothing: `last`, and names of EAGLE-3 heads.

    Groups in other processes count: a target is not told of those. Raises SetupError kinds where a head is not there.
    """
    if config.engine.features is not None:
        return config.engine.features
    named = [_feature_of(section) for section in config.drafters.values() if section.method in HEAD_METHODS]
    return tuple(dict.fromkeys(named))


def fused_folder(name: str) -> Path:
    """Folder of an EAGLE-3 head among the wanted features: as `resolve_model` says; a hub id may end in @revision."""
    from paceline.modeling.resolve import resolve_model  # noqa: PLC0415  # lazy, as below

    source, _, revision = name.rpartition("@")
    if not source or Path(name).expanduser().is_dir():
        return resolve_model(name)
    return resolve_model(source, revision)


def _feature_of(section: DrafterConfig) -> str:
    if section.method != "eagle" or section.model is None:
        return LAST
    from paceline.modeling.heads.layout import is_eagle3, read_head_config  # noqa: PLC0415
    from paceline.modeling.resolve import resolve_model  # noqa: PLC0415

    folder = resolve_model(section.model, section.revision)
    if not is_eagle3(read_head_config(folder)):
        return LAST
    return section.model if section.revision is None else f"{section.model}@{section.revision}"
