"""The gate between a target and any drafter, in this process or behind a link: one check for every method.

A method that works on ids alone (n-gram) has no vocabulary and no context length of its own; it takes
the target's, so its drafts are ids of that vocabulary by construction.
"""

from dataclasses import dataclass

from paceline.core.model_identity import FeatureFacts, VocabularyIdentity
from paceline.errors import LinkRefusedError


@dataclass(frozen=True, slots=True)
class TargetFacts:
    """What a target says about itself before the first draft."""

    vocabulary: VocabularyIdentity
    context_length: int  # longest context that it serves, in tokens
    features: tuple[FeatureFacts, ...] = ()  # that it keeps and can send


@dataclass(frozen=True, slots=True)
class DrafterFacts:
    """What a drafter is. None: the method has no such thing and takes the target's."""

    method: str
    group: str
    vocabulary: VocabularyIdentity | None = None
    context_length: int | None = None
    weights_version: str = ""  # empty where the method has no weights
    feature: FeatureFacts | None = None  # that it needs with every token


def check_match(target: TargetFacts, drafter: DrafterFacts, *, group: str) -> None:
    """Raise LinkRefusedError, naming the field, unless the two can work together.

    The drafter's context may be longer than the target's, not shorter.
    """
    if drafter.group != group:
        raise LinkRefusedError("group", group, drafter.group)
    if drafter.vocabulary is not None:
        _check_vocabulary(target.vocabulary, drafter.vocabulary)
    if drafter.context_length is not None and drafter.context_length < target.context_length:
        raise LinkRefusedError("context_length", str(target.context_length), str(drafter.context_length))
    if drafter.feature is not None and drafter.feature not in target.features:
        kept = ", ".join(f"{feature.kind} of {feature.size}" for feature in target.features) or "none"
        raise LinkRefusedError("features", kept, f"{drafter.feature.kind} of {drafter.feature.size}")


def _check_vocabulary(target: VocabularyIdentity, drafter: VocabularyIdentity) -> None:
    if target.size != drafter.size:
        raise LinkRefusedError("vocabulary.size", str(target.size), str(drafter.size))
    ours, theirs = dict(target.special_ids), dict(drafter.special_ids)
    for role in sorted(ours.keys() | theirs.keys()):
        if ours.get(role) != theirs.get(role):
            raise LinkRefusedError(
                f"vocabulary.special_ids.{role}", str(ours.get(role, "none")), str(theirs.get(role, "none"))
            )
    if target.fingerprint != drafter.fingerprint:
        raise LinkRefusedError("vocabulary.fingerprint", target.fingerprint, drafter.fingerprint)
