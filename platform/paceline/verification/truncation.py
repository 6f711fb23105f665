"""Which ids survive min-p, top-k and top-p. Order everywhere: score descending, then id ascending."""

import math

import torch

from paceline.verification.law import TokenLaw

_FIRST_NUCLEUS = 128  # ids ranked at first for top-p; four times more until the mass is reached


def top_slots(scores: torch.Tensor, count: int) -> torch.Tensor:
    """Ascending slots (int64) of the ``count`` best of ``scores`` [n]; fewer where the rest are -inf."""
    if count >= scores.numel():
        return (scores > -math.inf).nonzero().squeeze(1)
    cut = torch.topk(scores, count, sorted=True).values[-1]
    if cut == -math.inf:
        return (scores > -math.inf).nonzero().squeeze(1)
    slots = (scores >= cut).nonzero().squeeze(1)
    surplus = slots.numel() - count
    if surplus:
        ties = (scores[slots] == cut).nonzero().squeeze(1)
        keep = torch.ones_like(slots, dtype=torch.bool)
        keep[ties[-surplus:]] = False  # of equal scores, the lowest ids stay
        slots = slots[keep]
    return slots


def ranked_slots(scores: torch.Tensor, count: int) -> torch.Tensor:
    """Slots (int64) of the ``count`` best of ``scores`` [n], best first."""
    slots = top_slots(scores, count)
    return slots[torch.sort(scores[slots], descending=True, stable=True).indices]


def nucleus_slots(scores: torch.Tensor, top_p: float) -> torch.Tensor:
    """Ascending slots of the smallest best-first set whose mass reaches ``top_p``."""
    total = torch.logsumexp(scores.double(), dim=0)
    count = min(_FIRST_NUCLEUS, scores.numel())
    while True:
        ranked = ranked_slots(scores, count)
        mass = (scores[ranked].double() - total).exp_().cumsum(0)
        if mass[-1] >= top_p or count >= scores.numel():
            # An id stays if the mass before it falls short of top_p: the one that crosses is kept.
            kept = 1 + int((mass[:-1] < top_p).sum())
            return torch.sort(ranked[:kept]).values
        count = min(4 * count, scores.numel())


def truncated_law(scores: torch.Tensor, *, min_p: float, top_k: int, top_p: float) -> TokenLaw:
    """min-p, then top-k, then top-p on the renormalised rest of ``scores`` [vocab]."""
    law = TokenLaw(scores)
    if min_p > 0.0:
        law = _narrow(law, (scores >= scores.max() + math.log(min_p)).nonzero().squeeze(1))
    if top_k > 0:
        law = _narrow(law, top_slots(law.log_weights, top_k))
    if top_p < 1.0:
        law = _narrow(law, nucleus_slots(law.log_weights, top_p))
    return law


def _narrow(law: TokenLaw, slots: torch.Tensor) -> TokenLaw:
    token_ids = slots if law.token_ids is None else law.token_ids[slots]
    return TokenLaw(law.log_weights[slots], token_ids)
