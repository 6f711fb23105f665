"""How a drafter draws its next tokens, so that the verifier's rule is exact and agreement is high."""

import copy
import math
from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

import torch

from paceline.core.drafts import DrawRule, SparseLaw
from paceline.verification.law import TokenLaw, draw_from, sparse_probabilities
from paceline.verification.noise import NoiseKey, Purpose, row_key
from paceline.verification.sampler_state import SamplerState
from paceline.verification.sampling import target_law
from paceline.verification.truncation import ranked_slots, top_slots

# In nats. A drafter near to its target does best at 0.5 or below, one that misses every second token at 1 or above;
# between both, 0.7 loses a few percent of the accepted drafts to either. Towards 0 a tree trusts its first branch.
_DISAGREEMENT = 0.7


class DraftChildren(NamedTuple):
    """Alternatives for one position, best first."""

    token_ids: tuple[int, ...]
    costs: tuple[float, ...]  # minus the logarithm of each one's estimated chance to be accepted; at least 0
    law: SparseLaw | None  # that all of them were drawn from; None: they are no draws


def draft_choice(
    logits: torch.Tensor, state: SamplerState, *, rule: DrawRule, round_start: int, max_law_tokens: int
) -> tuple[int, SparseLaw | None]:
    """One draft for the position of ``state``, from the drafter's ``logits`` [vocab].

    The draft law is warped like the target's. COUPLED draws with the target's own noise and needs no law.
    INDEPENDENT keeps the ``max_law_tokens`` likeliest ids, rounds to what travels, and draws from exactly
    that, with noise keyed by ``round_start``: the length of the context when this proposal began.
    Greedy requests get the argmax and no law.
    """
    law = target_law(logits, state)
    if state.params.greedy or rule is DrawRule.COUPLED:
        return law.draw(_target_key(state)), None
    sparse = wire_law(law, max_law_tokens)
    return draw_from(sparse, _draft_key(state, round_start)), sparse


def draft_children(
    logits: torch.Tensor, state: SamplerState, *, rule: DrawRule, round_start: int, max_law_tokens: int, count: int
) -> DraftChildren:
    """Up to ``count`` different drafts for one position; the first is that of `draft_choice`.

    COUPLED and greedy: the ids that score best, with the target's noise added in the former case. A child is as
    likely to be the target's choice as its score is near to the best one, whatever its probability.
    INDEPENDENT: drawn one after another without replacement, which the ids of largest log q + noise are
    (Kool et al. 2019). Nodes at one depth share their noise; a walk only ever looks below one of them.
    """
    if count == 1:
        token_id, sparse = draft_choice(
            logits, state, rule=rule, round_start=round_start, max_law_tokens=max_law_tokens
        )
        return DraftChildren((token_id,), (0.0,), sparse)
    if state.params.greedy:
        scores = target_law(logits, _unwarped(state)).log_weights
        slots = ranked_slots(scores, count)
        return DraftChildren(tuple(slots.tolist()), _costs(scores[slots].tolist()), None)
    law = target_law(logits, state)
    if rule is DrawRule.COUPLED:
        best = law.ranked_draw(_target_key(state), count)
        return DraftChildren(tuple(one.token_id for one in best), _costs([one.score for one in best]), None)
    sparse = wire_law(law, max_law_tokens)
    wire_ids, probabilities = sparse_probabilities(sparse)
    drawn = TokenLaw(probabilities.log(), wire_ids).ranked_draw(_draft_key(state, round_start), count)
    return DraftChildren(tuple(one.token_id for one in drawn), (0.0,) * len(drawn), sparse)


def wire_law(law: TokenLaw, max_tokens: int) -> SparseLaw:
    """The ``max_tokens`` likeliest ids of ``law``, renormalised, in the float32 values that travel."""
    slots = top_slots(law.log_weights, max_tokens)
    weights = torch.softmax(law.log_weights[slots], dim=0, dtype=torch.float64).float()
    token_ids = slots if law.token_ids is None else law.token_ids[slots]
    kept = weights > 0.0
    return SparseLaw(tuple(token_ids[kept].tolist()), tuple(weights[kept].tolist()))


def _costs(scores: Sequence[float]) -> tuple[float, ...]:
    """Minus the logarithm of each child's chance to be the target's choice among them, by its gap to the best.

    The target's scores differ from the drafter's by what the two models disagree on. Were that Gumbel noise of
    scale `_DISAGREEMENT`, a softmax of that temperature would be the exact chance.
    """
    gaps = [(scores[0] - score) / _DISAGREEMENT for score in scores]
    log_total = math.log(sum(math.exp(-gap) for gap in gaps))
    return tuple(gap + log_total for gap in gaps)


def _unwarped(state: SamplerState) -> SamplerState:
    """A view of a greedy state with the scores of all ids, penalties and masks included."""
    view = copy.copy(state)
    view.params = replace(state.params, temperature=1.0, min_p=0.0, top_k=0, top_p=1.0)
    return view


def _target_key(state: SamplerState) -> int:
    return row_key(NoiseKey(state.seed, state.choice, state.position, Purpose.TARGET))


def _draft_key(state: SamplerState, round_start: int) -> int:
    return row_key(NoiseKey(state.seed, state.choice, state.position, Purpose.DRAFT, round_start))
