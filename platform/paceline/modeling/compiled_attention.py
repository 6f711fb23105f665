"""Attention over pages by the compiled kernel; see ``kernels/paged_attention.c``."""

import ctypes

import torch

from paceline.kernels.decoder_layers import AttentionCall
from paceline.modeling.step_meta import StepMeta


def attend_compiled(
    kernels: ctypes.CDLL,
    step: StepMeta,
    layer: int,
    query: torch.Tensor,
    output: torch.Tensor,
    *,
    scaling: float,
    window: int | None,
    softcap: float | None,
) -> None:
    """Fill ``output`` ([tokens, num_heads, head_dim]) for ``query`` ([num_heads, tokens, head_dim]).

    The same function as `attend_in_torch`; a query's bits depend on its own keys only. K/V are read where
    they lie, never copied.
    """
    keys, values = step.store.keys[layer], step.store.values[layer]
    query = query if query.stride(2) == 1 else query.contiguous()
    call = AttentionCall(
        query=query.data_ptr(),
        out=output.data_ptr(),
        keys=keys.data_ptr(),
        values=values.data_ptr(),
        sequences=ctypes.addressof(step.sequences),
        num_sequences=len(step.sequences),
        query_row=query.stride(1),
        query_head=query.stride(0),
        out_row=output.stride(0),
        out_head=output.stride(1),
        num_heads=query.shape[0],
        num_kv_heads=keys.shape[1],
        head_dim=query.shape[2],
        is_bf16=query.dtype is torch.bfloat16,
        threads=torch.get_num_threads(),
        window=window or 0,
        scaling=scaling,
        softcap=softcap or 0.0,
    )
    kernels.paged_attention(ctypes.byref(call))
