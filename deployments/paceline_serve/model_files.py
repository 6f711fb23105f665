"""Gets every model of a deployment onto this machine before anything starts, where the user can watch."""

from paceline.config.schema import DeploymentConfig
from paceline.drafting.head_fit import check_heads
from paceline.modeling.progress import Progress
from paceline.modeling.resolve import resolve_model


def fetch_models(config: DeploymentConfig, progress: Progress) -> None:
    """Fetch what is not here yet, and hold draft heads against their target.

    Raises ModelUnavailableError or ConfigError with what to do.
    """
    resolve_model(config.model.source, config.model.revision, progress=progress)
    for group in config.drafters.values():
        for section in (group, *group.levels):
            if section.model is not None:
                resolve_model(section.model, section.revision, progress=progress)
    check_heads(config, resolve_model)
