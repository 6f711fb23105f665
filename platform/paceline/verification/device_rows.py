"""Warping and drawing of many rows on an accelerator, where the host must not wait for each.

The same results as `truncation` and `noisy_best`, in another form: rows keep the whole vocabulary with -inf for
what is removed, and a level of a walk costs the host one wait, for the ids. Noise is taken in full, since there it
costs less than looking at it.
"""

import math
from collections.abc import Sequence

import torch

from paceline.kernels.token_law import Warp, WarpedRow
from paceline.kernels.token_noise import NoisyRow, NoisySlot
from paceline.verification.noise import gumbel, signed, token_bits


def warped_rows(scores: Sequence[torch.Tensor], warps: Sequence[Warp]) -> list[WarpedRow]:
    """Temperature, then min-p, top-k and top-p, of each of ``scores`` [vocab]; no id is removed from the support.

    Where a row has no distribution its weights are NaN or all -inf, which shows when it is drawn from.
    """
    batch = torch.stack(list(scores))  # [rows, vocab]
    best = batch.amax(dim=1, keepdim=True)
    temperatures = _column(batch, [warp.temperature or 1.0 for warp in warps])
    warped = torch.where(temperatures == 1.0, batch, (batch - best) / temperatures)
    highest = torch.where(temperatures == 1.0, best, best - best)
    if any(warp.log_min_p > -math.inf for warp in warps):
        least = highest + _column(batch, [warp.log_min_p for warp in warps])
        warped = warped.masked_fill(warped < least, -math.inf)
    if any(warp.top_k > 0 or warp.top_p < 1.0 for warp in warps):
        warped = _cut(warped, highest, warps)
    for index, warp in enumerate(warps):
        if warp.temperature == 0.0:
            # best - best is NaN where the best is not finite, so that a broken row is seen.
            is_best = torch.arange(batch.shape[1], device=batch.device) == batch[index].argmax()
            warped[index] = torch.where(is_best, best[index] - best[index], -math.inf)
    return [WarpedRow(0, row, None) for row in warped]


def _cut(scores: torch.Tensor, highest: torch.Tensor, warps: Sequence[Warp]) -> torch.Tensor:
    """top-k, then top-p on the rest, of ``scores`` [rows, vocab] with their maxima [rows, 1]."""
    vocab_size = scores.shape[1]
    ranked, order = torch.sort(scores, dim=1, descending=True, stable=True)
    ranks = torch.arange(vocab_size, device=scores.device)
    dropped = ranks >= _column(scores, [warp.top_k or vocab_size for warp in warps], torch.int64)
    masses = (ranked.double() - highest.double()).exp_().masked_fill_(dropped, 0.0)
    goals = _column(scores, [warp.top_p if warp.top_p < 1.0 else math.inf for warp in warps], torch.float64)
    reached = masses.cumsum(dim=1)
    # An id stays if the mass before it falls short of the goal: the one that crosses is kept.
    dropped[:, 1:] |= reached[:, :-1] >= goals * reached[:, -1:]
    return scores.masked_fill(torch.zeros_like(dropped).scatter_(1, order, dropped), -math.inf)


def best_slots(rows: Sequence[NoisyRow], *, count: int) -> list[list[NoisySlot]]:
    """The ``count`` slots of each row with the largest log-weight + noise, best first. All rows are of one size.

    A row without a distribution gives a score of NaN, or nothing.
    """
    weights = torch.stack([row.log_weights for row in rows])  # [rows, support]
    slots = torch.arange(weights.shape[1], device=weights.device)
    ids = torch.stack([slots if row.token_ids is None else row.token_ids for row in rows])
    bits = token_bits(_column(weights, [signed(row.row_key) for row in rows], torch.int64), ids)
    best = torch.topk(weights.double().add_(gumbel(bits)), min(count, weights.shape[1]), dim=1)
    # One wait for both: slots are exact in float64.
    found = torch.stack([best.indices.double(), best.values], dim=2).tolist()
    return [[NoisySlot(int(slot), score) for slot, score in row if score != -math.inf] for row in found]


def _column(like: torch.Tensor, values: Sequence[float], dtype: torch.dtype | None = None) -> torch.Tensor:
    """[rows, 1] on the device of ``like``; the host does not wait for the copy."""
    host = torch.tensor(values, dtype=dtype or like.dtype)
    if like.device.type != "cpu":
        host = host.pin_memory()
    return host.to(like.device, non_blocking=True)[:, None]
