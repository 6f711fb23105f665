"""The largest of log-weight + Gumbel noise over a vocabulary, without noise for most of it.

Ids outside the heaviest have weights of at most the lightest of those, so they must beat one common level of
noise to matter: an integer comparison. This is the readable form of the kernel in `kernels/token_noise.c`, which
serves where it can be compiled. Logarithms may differ between both in the last ulp.
"""

import math
from collections.abc import Sequence

import torch

from paceline.kernels import token_noise
from paceline.kernels.token_noise import NoisyRow, NoisySlot
from paceline.verification import device_rows
from paceline.verification.noise import gumbel, may_exceed, token_bits

_HEAD = 64  # ids whose noise is always taken in full; more costs logarithms, fewer lets more of the tail in


def best_slots(rows: Sequence[NoisyRow], *, count: int = 1) -> list[list[NoisySlot]]:
    """The ``count`` slots of each row with the largest log-weight + noise, best first; ties go to the lower id.

    Slots of weight -inf are left out, so a row may give fewer. At least one weight of each row is finite.
    """
    found: list[list[NoisySlot]] = [[] for _ in rows]
    together: dict[tuple[torch.dtype, int | None], list[int]] = {}
    for index, row in enumerate(rows):
        if row.log_weights.device.type != "cpu":
            together.setdefault((row.log_weights.dtype, row.log_weights.numel()), []).append(index)
        elif token_noise.serves(row):
            together.setdefault((row.log_weights.dtype, None), []).append(index)
        else:
            found[index] = best_slots_torch(row, count=count)
    for (_, device_size), indices in together.items():
        serve = token_noise.best_slots if device_size is None else device_rows.best_slots
        for index, answer in zip(indices, serve([rows[index] for index in indices], count=count), strict=True):
            found[index] = answer
    return found


def best_slots_torch(row: NoisyRow, *, count: int) -> list[NoisySlot]:
    """`best_slots` of one row on any device."""
    weights, size = row.log_weights, row.log_weights.numel()
    bits = token_bits(row.row_key, _ids(row))
    num_head = max(_HEAD, count)
    slots = torch.arange(size, device=weights.device)
    if size > 2 * num_head:
        head = torch.topk(weights, num_head, sorted=True)
        least = torch.topk(head.values.double() + gumbel(bits[head.indices]), count).values[-1]
        lightest = float(head.values[-1])
        near = may_exceed(bits, float(least) - lightest if lightest > -math.inf else math.inf)
        near[head.indices] = True
        slots = near.nonzero().squeeze(1)
    scores = weights[slots].double() + gumbel(bits[slots])
    # Slots ascend, so a stable sort leaves the lower id of a tie first; few are left to be sorted.
    ranking = torch.sort(scores, descending=True, stable=True)
    best = zip(slots[ranking.indices[:count]].tolist(), ranking.values[:count].tolist(), strict=True)
    return [NoisySlot(slot, score) for slot, score in best if score > -math.inf]


def _ids(row: NoisyRow) -> torch.Tensor:
    if row.token_ids is not None:
        return row.token_ids
    return torch.arange(row.log_weights.numel(), device=row.log_weights.device)
