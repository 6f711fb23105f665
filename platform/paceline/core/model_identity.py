"""Facts about a model that both ends of a link, and both ends of a resume, must share."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class VocabularyIdentity:
    """What a drafter must share with its target before the first draft."""

    fingerprint: str  # SHA-256 over (id, token string) pairs and special ids
    size: int  # rows of the output head, padding included
    special_ids: tuple[tuple[str, int], ...]  # (role such as "eos", id), sorted by role


@dataclass(frozen=True, slots=True)
class ModelIdentity:
    """Names what a seed can be replayed on."""

    name: str  # served name
    system_fingerprint: str  # weights, tokenizer, dtype, engine, verifier and numerics, hashed
    context_length: int
    vocabulary: VocabularyIdentity
    eos_token_ids: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class FeatureFacts:
    """Which hidden state a target keeps, or a drafter wants, for every token.

    ``kind`` is ``last`` (after the final norm) or ``fused:`` and the fingerprint of what fuses several layers into
    one vector (EAGLE-3). Only equal ones fit.
    """

    kind: str
    size: int
