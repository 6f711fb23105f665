"""The one gate between a target and any drafter, in this process or behind a link."""

from dataclasses import dataclass

from paceline.core.model_identity import VocabularyIdentity
from paceline.errors import LinkRefusedError


@dataclass(frozen=True, slots=True)
class TargetFacts:
    """What a target says of itself before the first draft."""

    vocabulary: VocabularyIdentity
    context_length: int  # tokens


@dataclass(frozen=True, slots=True)
class DrafterFacts:
    """What a drafter says of itself before the first draft, whatever its method."""

    group: str
    method: str
    vocabulary: VocabularyIdentity
    context_length: int  # tokens; not less than the target's
    weights_version: str  # acceptance is kept per version


def check_match(target: TargetFacts, drafter: DrafterFacts) -> None:
    """Raise LinkRefusedError with the first field in which the two do not fit together."""
    ours, theirs = target.vocabulary, drafter.vocabulary
    for field, target_value, drafter_value in (
        ("vocabulary.special_ids", _roles(ours), _roles(theirs)),
        ("vocabulary.size", str(ours.size), str(theirs.size)),
        ("vocabulary.fingerprint", ours.fingerprint, theirs.fingerprint),
    ):
        if target_value != drafter_value:
            raise LinkRefusedError(field, target_value, drafter_value)
    if drafter.context_length < target.context_length:
        raise LinkRefusedError("context_length", str(target.context_length), str(drafter.context_length))


def _roles(vocabulary: VocabularyIdentity) -> str:
    return ", ".join(f"{role}={token_id}" for role, token_id in vocabulary.special_ids) or "none"
