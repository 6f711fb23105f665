"""One draft of a chain together with the law it was drawn from."""

import math
from typing import NamedTuple

import torch

from paceline.core.drafts import DraftProposal, SparseLaw
from paceline.verification.law import TokenLaw, sparse_probabilities


class DraftStep(NamedTuple):
    """A draft and its law q: ``probabilities`` (float64, sum 1) of ``law_ids`` (int64, ascending)."""

    token_id: int
    probability: float  # q of the draft itself, above 0
    law_ids: torch.Tensor
    law_probabilities: torch.Tensor


def draft_step(proposal: DraftProposal | None, index: int) -> DraftStep | None:
    """The draft at ``index``; None past the end, and where its law cannot be the one it was drawn from.

    Without laws the draft was chosen, not drawn: q is one-hot. A law is refused if it is missing, is no
    distribution, or gives its draft probability zero. The caller then goes on as if the chain ended
    before this draft, which is exact: no acceptance test has been made against the false law, so the next
    token may be drawn from the target law itself. Testing and taking the residual would not be.
    """
    if proposal is None or index >= len(proposal.tree):
        return None
    token_id = proposal.tree.token_ids[index]
    if not proposal.laws:
        return DraftStep(token_id, 1.0, torch.tensor([token_id]), torch.ones(1, dtype=torch.float64))
    if index >= len(proposal.laws) or not _is_distribution(proposal.laws[index]):
        return None
    law_ids, probabilities = sparse_probabilities(proposal.laws[index])
    slot = int(torch.searchsorted(law_ids, token_id))
    if slot == law_ids.numel() or int(law_ids[slot]) != token_id or float(probabilities[slot]) <= 0.0:
        return None
    return DraftStep(token_id, float(probabilities[slot]), law_ids, probabilities)


def residual_law(target: TokenLaw, step: DraftStep, *, scale: float = 1.0) -> TokenLaw:
    """norm(max(0, scale · p - q)) over the support of p, in float64.

    Where that has no mass, which only rounding can bring about, the answer is p itself.
    """
    weights = scale * target.probabilities
    slots, inside = target.locate(step.law_ids)
    weights[slots[inside]] -= step.law_probabilities.to(weights.device)[inside]
    weights.clamp_(min=0.0)
    if float(weights.sum()) <= 0.0:
        return target
    return TokenLaw(weights.log_(), target.token_ids)


def _is_distribution(law: SparseLaw) -> bool:
    weights = law.probabilities
    return (
        len(weights) == len(law.token_ids) == len(set(law.token_ids))
        and all(math.isfinite(weight) and weight >= 0.0 for weight in weights)
        and sum(weights) > 0.0
    )
