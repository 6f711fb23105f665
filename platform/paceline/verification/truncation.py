"""Which ids survive temperature, min-p, top-k and top-p. Order everywhere: score descending, then id ascending.

The readable form of the kernel in `kernels/token_law.c`, which serves where it can be compiled. Sums may differ
between both in the last ulp; scores and their order do not.
"""

import math

import torch

from paceline.kernels.token_law import ALL_MASKED, NOT_FINITE, Warp, WarpedRow

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
    """Ascending slots of the smallest best-first set whose mass reaches ``top_p``; none of weight zero."""
    best = scores.max().double()
    goal = top_p * (scores.double() - best).exp_().sum()
    count = min(_FIRST_NUCLEUS, scores.numel())
    while True:
        ranked = ranked_slots(scores, count)
        mass = (scores[ranked].double() - best).exp_().cumsum(0)
        if mass[-1] >= goal or count >= scores.numel():
            # An id stays if the mass before it falls short of the goal: the one that crosses is kept.
            kept = 1 + int((mass[:-1] < goal).sum())
            return torch.sort(ranked[:kept]).values
        count = min(4 * count, scores.numel())


def warped_row(scores: torch.Tensor, warp: Warp) -> WarpedRow:
    """Temperature, then min-p, top-k and top-p on the renormalised rest, of ``scores`` [vocab] on any device."""
    best, best_id = torch.max(scores, dim=0)  # NaN wins every comparison in torch.max
    highest = float(best)
    if math.isnan(highest) or highest == math.inf:
        return WarpedRow(NOT_FINITE, scores, None)
    if highest == -math.inf:
        return WarpedRow(ALL_MASKED, scores, None)
    if warp.temperature == 0.0:
        return WarpedRow(int(best_id), scores, None)
    if warp.temperature != 1.0:
        # From the maximum down: a tiny temperature then sends the others to -inf and never overflows.
        scores = (scores - best) / warp.temperature
    if not warp.truncates:
        return WarpedRow(0, scores, None)
    token_ids = torch.arange(scores.numel(), device=scores.device)
    if warp.log_min_p > -math.inf:
        slots = (scores >= scores.max() + warp.log_min_p).nonzero().squeeze(1)
        scores, token_ids = scores[slots], token_ids[slots]
    if warp.top_k > 0:
        slots = top_slots(scores, warp.top_k)
        scores, token_ids = scores[slots], token_ids[slots]
    if warp.top_p < 1.0:
        slots = nucleus_slots(scores, warp.top_p)
        scores, token_ids = scores[slots], token_ids[slots]
    return WarpedRow(0, scores, token_ids)
