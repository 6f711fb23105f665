"""Compiled temperature and truncation (`token_law.c`). Readable forms: `verification.{sampling,truncation}`."""

import ctypes
from collections.abc import Sequence
from functools import lru_cache
from typing import Any, NamedTuple

import torch

from paceline.kernels.compiled import load_kernel

_SUFFIXES = {torch.float32: "float", torch.float64: "double"}

NOT_FINITE = -1  # NaN or +inf among the logits
ALL_MASKED = -2  # every logit is -inf
_NO_MEMORY = -3


class Warp(NamedTuple):
    """How one row is warped; the defaults leave it as it is."""

    temperature: float = 1.0  # 0: only the best id
    log_min_p: float = -float("inf")
    top_k: int = 0
    top_p: float = 1.0

    @property
    def truncates(self) -> bool:
        """Whether ids are removed from the support."""
        return self.top_k > 0 or self.top_p < 1.0 or self.log_min_p > -float("inf")


class WarpedRow(NamedTuple):
    """What is left of one row; ``best_id`` is NOT_FINITE or ALL_MASKED where there is no distribution."""

    best_id: int  # for temperature 0, else 0
    log_weights: torch.Tensor  # [support]; the logits themselves where nothing applies
    token_ids: torch.Tensor | None  # int64 [support], ascending; None: the whole vocabulary


@lru_cache
def _function(name: str, dtype: torch.dtype) -> Any:
    library = load_kernel("token_law")
    if library is None or dtype not in _SUFFIXES:
        return None
    function = getattr(library, f"{name}_{_SUFFIXES[dtype]}")
    function.restype = ctypes.c_double if name == "log_total" else None
    return function


def serves(scores: torch.Tensor) -> bool:
    """Whether the kernels can take ``scores`` [vocab]."""
    return scores.device.type == "cpu" and scores.is_contiguous() and _function("log_total", scores.dtype) is not None


def warp_rows(logits: Sequence[torch.Tensor], warps: Sequence[Warp]) -> list[WarpedRow]:
    """Temperature, then min-p, top-k and top-p on the renormalised rest, of each of ``logits`` [vocab].

    All rows have one size and dtype, and the kernel `serves` them. Rows are spread over torch's threads.
    """
    num_rows, size = len(logits), logits[0].numel()
    weights = [
        torch.empty_like(row) if warp.truncates or warp.temperature not in (0.0, 1.0) else row
        for row, warp in zip(logits, warps, strict=True)
    ]
    ids = [torch.empty(size, dtype=torch.int64) if warp.truncates and warp.temperature else None for warp in warps]
    best_ids, kept = (ctypes.c_int64 * num_rows)(), (ctypes.c_int64 * num_rows)()
    _function("warp_rows", logits[0].dtype)(
        ctypes.c_int64(num_rows),
        ctypes.c_int64(size),
        (ctypes.c_void_p * num_rows)(*(row.data_ptr() for row in logits)),
        (ctypes.c_double * num_rows)(*(warp.temperature for warp in warps)),
        (ctypes.c_double * num_rows)(*(warp.log_min_p for warp in warps)),
        (ctypes.c_int64 * num_rows)(*(warp.top_k for warp in warps)),
        (ctypes.c_double * num_rows)(*(warp.top_p for warp in warps)),
        (ctypes.c_void_p * num_rows)(*(row.data_ptr() for row in weights)),
        (ctypes.c_void_p * num_rows)(*(None if row is None else row.data_ptr() for row in ids)),
        best_ids,
        kept,
    )
    if _NO_MEMORY in best_ids:
        raise MemoryError("no memory for truncation")
    return [
        WarpedRow(best_id, row, None) if slots is None else WarpedRow(best_id, row[:count], slots[:count])
        for best_id, row, slots, count in zip(best_ids, weights, ids, kept, strict=True)
    ]


def log_total(scores: torch.Tensor) -> float:
    """Log of the sum of e^scores [n] in float64; one score at least is finite, none NaN or +inf."""
    return float(
        _function("log_total", scores.dtype)(ctypes.c_void_p(scores.data_ptr()), ctypes.c_int64(scores.numel()))
    )
