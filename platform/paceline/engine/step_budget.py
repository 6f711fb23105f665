"""Shares the tokens of one pass among sequences. Pure arithmetic: nobody starves, drafts come last."""

from collections.abc import Sequence as SequenceOf
from typing import NamedTuple

from paceline.engine.sequence import Sequence

_LEAST_PREFILL = 4  # prompts get at least 1 / this of a pass


class StepShares(NamedTuple):
    """How many tokens of a pass go to prompts and to drafts; each decoding sequence has one besides."""

    prefill: int
    drafts: int


def shares(step_tokens: int, *, num_decoding: int, wanted_drafts: int, wanted_prefill: int) -> StepShares:
    """Decoding tokens first, then a quarter of the pass for prompts, then drafts, then prompts again.

    However many sequences decode, prompts get their quarter, on top of ``step_tokens`` if it must be.
    """
    left = step_tokens - num_decoding
    least = min(wanted_prefill, max(step_tokens // _LEAST_PREFILL, 1))
    drafts = max(0, min(wanted_drafts, left - least))
    return StepShares(min(wanted_prefill, max(least, left - drafts)), drafts)


def share_drafts(wanted: SequenceOf[int], budget: int) -> list[int]:
    """Evenly, as far as each wants: the first draft of a sequence is worth more than another's fifth."""
    given = []
    for index, most in enumerate(wanted):
        even = -(-budget // (len(wanted) - index))
        given.append(min(most, even))
        budget -= given[-1]
    return given


def share_prefill(prefilling: SequenceOf[Sequence], budget: int) -> dict[Sequence, int]:
    """Tokens for each prompt: half to the oldest, the rest to those with the least left, in this order.

    A short prompt does not wait for a long one, and a long one, once it is the oldest, gets half of every pass.
    """
    given: dict[Sequence, int] = {}
    if not prefilling:
        return given
    oldest = min(prefilling, key=lambda sequence: sequence.arrival)
    given[oldest] = min(oldest.num_missing, -(-budget // 2))
    left = budget - given[oldest]
    for sequence in sorted(prefilling, key=lambda sequence: (sequence.num_missing, sequence.arrival)):
        more = min(left, sequence.num_missing - given.get(sequence, 0))
        if more:
            given[sequence] = given.get(sequence, 0) + more
            left -= more
    return given
