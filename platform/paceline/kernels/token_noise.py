"""The compiled Gumbel-max draw (`token_noise.c`). Its readable form is `verification.noisy_best`."""

import ctypes
from collections.abc import Sequence
from functools import lru_cache
from typing import Any, NamedTuple

import torch

from paceline.kernels.compiled import load_kernel

_FUNCTIONS = {torch.float32: "draw_rows_float", torch.float64: "draw_rows_double"}


class NoisyRow(NamedTuple):
    """Weights of one row, the ids that they belong to, and the noise to add."""

    log_weights: torch.Tensor  # [support], contiguous
    token_ids: torch.Tensor | None  # int64 [support], ascending; None: slots are ids
    row_key: int  # unsigned


class NoisySlot(NamedTuple):
    """A slot of a row's support, and its log-weight plus noise."""

    slot: int
    score: float


@lru_cache
def _function(dtype: torch.dtype) -> Any:
    library = load_kernel("token_noise")
    return None if library is None or dtype not in _FUNCTIONS else getattr(library, _FUNCTIONS[dtype])


def serves(row: NoisyRow) -> bool:
    """Whether the kernel can take this row."""
    return (
        row.log_weights.device.type == "cpu"
        and row.log_weights.is_contiguous()
        and _function(row.log_weights.dtype) is not None
    )


def best_slots(rows: Sequence[NoisyRow], *, count: int) -> list[list[NoisySlot]]:
    """The ``count`` slots of each row with the largest log-weight + noise, best first; ties by id.

    Slots of weight -inf are left out, so a row may give fewer. Every row is one that the kernel `serves`, and
    all have one dtype. Rows are spread over torch's threads; the result does not depend on how.
    """
    num_rows = len(rows)
    slots, scores = (ctypes.c_int64 * (num_rows * count))(), (ctypes.c_double * (num_rows * count))()
    kept = (ctypes.c_int64 * num_rows)()
    _function(rows[0].log_weights.dtype)(
        ctypes.c_int64(num_rows),
        (ctypes.c_void_p * num_rows)(*(row.log_weights.data_ptr() for row in rows)),
        (ctypes.c_void_p * num_rows)(*(None if row.token_ids is None else row.token_ids.data_ptr() for row in rows)),
        (ctypes.c_int64 * num_rows)(*(row.log_weights.numel() for row in rows)),
        (ctypes.c_uint64 * num_rows)(*(row.row_key for row in rows)),
        ctypes.c_int64(count),
        slots,
        scores,
        kept,
    )
    return [
        [NoisySlot(slots[at], scores[at]) for at in range(row * count, row * count + kept[row])]
        for row in range(num_rows)
    ]
