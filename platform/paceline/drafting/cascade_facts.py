"""What a cascade says about itself, and whether its levels fit each other."""

from dataclasses import replace

from paceline.drafting.matching import DrafterFacts, TargetFacts, check_match
from paceline.errors import ConfigError, LinkRefusedError


def check_level(facts: DrafterFacts, below: DrafterFacts, *, group: str, level: int) -> None:
    """Raise ConfigError unless a model can correct the level below it: both must mean the same by an id.

    ``level`` is the place of the model in the cascade; 0 is the cheapest.
    """
    if facts.vocabulary is None:
        raise ConfigError(
            f"Drafter group '{group}': level {level + 1} has no vocabulary to check level {level} against."
        )
    try:
        check_match(TargetFacts(facts.vocabulary, context_length=0), below, group=group)
    except LinkRefusedError as error:
        raise ConfigError(
            f"Drafter group '{group}': level {level} does not fit level {level + 1}: {error}. Levels of a cascade have "
            "one vocabulary."
        ) from error


def cascade_facts(facts: DrafterFacts, below: DrafterFacts) -> DrafterFacts:
    """Facts of a model together with the level below: the shorter context, and the weights of both."""
    lengths = [length for length in (facts.context_length, below.context_length) if length is not None]
    versions = [version for version in (below.weights_version, facts.weights_version) if version]
    return replace(
        facts, method="cascade", context_length=min(lengths, default=None), weights_version="+".join(versions)
    )
