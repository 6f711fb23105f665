"""How a drafter draws its next tokens, so that the verifier's rule is exact and agreement is high."""

import copy
import math
from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

import torch

from paceline.core.drafts import DrawRule, SparseLaw
from paceline.verification.draft_ids import DraftIds
from paceline.verification.law import RankedId, TokenLaw, draw_from, sparse_probabilities
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
    logits: torch.Tensor,
    state: SamplerState,
    *,
    rule: DrawRule,
    round_start: int,
    max_law_tokens: int,
    draft_ids: DraftIds | None = None,
) -> tuple[int, SparseLaw | None]:
    """One draft for the position of ``state``, from the drafter's ``logits`` [vocab, or of ``draft_ids``].

    The draft law is warped like the target's. COUPLED draws with the target's own noise and needs no law.
    INDEPENDENT keeps the ``max_law_tokens`` likeliest ids, rounds to what travels, and draws from exactly
    that, with noise keyed by ``round_start``: the length of the context when this proposal began.
    Greedy requests get the argmax and no law.
    """
    law = _law(logits, state, draft_ids)
    if state.params.greedy or rule is DrawRule.COUPLED:
        return law.draw(_target_key(state)), None
    sparse = wire_law(law, max_law_tokens)
    return draw_from(sparse, _draft_key(state, round_start)), sparse


def draft_children(
    logits: torch.Tensor,
    state: SamplerState,
    *,
    rule: DrawRule,
    round_start: int,
    max_law_tokens: int,
    count: int,
    draft_ids: DraftIds | None = None,
) -> DraftChildren:
    """Up to ``count`` different drafts for one position; the first is that of `draft_choice`.

    COUPLED and greedy: the ids that score best, with the target's noise added in the former case. Greedy: a child is
    as likely to be the target's choice as the drafter says. COUPLED: as its score is near to the best one, whatever its
    probability. Either way some chance is left that none of them is right, and a node costs it too: a tree gets deep
    where its drafter is sure, and wide where it is not.
    INDEPENDENT: drawn one after another without replacement, which the ids of largest log q + noise are
    (Kool et al. 2019). Nodes at one depth share their noise; a walk only ever looks below one of them.
    """
    if count == 1:
        token_id, sparse = draft_choice(
            logits,
            state,
            rule=rule,
            round_start=round_start,
            max_law_tokens=max_law_tokens,
            draft_ids=draft_ids,
        )
        return DraftChildren((token_id,), (0.0,), sparse)
    if state.params.greedy:
        law = _law(logits, _unwarped(state), draft_ids)
        slots = ranked_slots(law.log_weights, count)
        token_ids = slots if law.token_ids is None else law.token_ids[slots]
        costs = law.log_total - law.log_weights[slots].double()
        return DraftChildren(tuple(token_ids.tolist()), tuple(costs.clamp_(min=0.0).tolist()), None)
    law = _law(logits, state, draft_ids)
    if rule is DrawRule.COUPLED:
        best = law.ranked_draw(_target_key(state), count)
        return DraftChildren(tuple(one.token_id for one in best), _coupled_costs(law, best), None)
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


def _coupled_costs(law: TokenLaw, best: Sequence[RankedId]) -> tuple[float, ...]:
    """Minus the logarithm of each child's chance to be the target's choice, by its gap to the best.

    The target's scores differ from the drafter's by what the two models disagree on. Were that Gumbel noise of
    scale `_DISAGREEMENT`, a softmax of that temperature over the scores of all ids would be the exact chance. The
    ids that are no children are not looked at one by one: of many with the mass R, those that score above s number
    R exp(-s) on average, which gives their part of the sum below the last child's score.
    """
    scores = [one.score - law.log_total for one in best]
    chances = law.probabilities_of(torch.tensor([one.token_id for one in best]))
    rest = max(0.0, 1.0 - float(chances.sum()))
    inverse = 1.0 / _DISAGREEMENT
    highest, lowest = scores[0], scores[-1]
    total = sum(math.exp((score - highest) * inverse) for score in scores)
    total += rest * math.exp(lowest * (inverse - 1.0) - highest * inverse) / (inverse - 1.0)
    return tuple((highest - score) * inverse + math.log(total) for score in scores)


def _law(logits: torch.Tensor, state: SamplerState, draft_ids: DraftIds | None) -> TokenLaw:
    return target_law(logits, state) if draft_ids is None else draft_ids.law(logits, state)


def _unwarped(state: SamplerState) -> SamplerState:
    """A view of a greedy state with the scores of all ids, penalties and masks included."""
    view = copy.copy(state)
    view.params = replace(state.params, temperature=1.0, min_p=0.0, top_k=0, top_p=1.0)
    return view


def _target_key(state: SamplerState) -> int:
    return row_key(NoiseKey(state.seed, state.choice, state.position, Purpose.TARGET))


def _draft_key(state: SamplerState, round_start: int) -> int:
    return row_key(NoiseKey(state.seed, state.choice, state.position, Purpose.DRAFT, round_start))
