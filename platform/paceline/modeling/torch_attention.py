"""Attention over pages in torch: the readable form, and what serves on CUDA or without a compiler."""

import torch
from torch.nn.functional import scaled_dot_product_attention

from paceline.modeling.step_meta import StepMeta


def attend_in_torch(
    step: StepMeta,
    layer: int,
    query: torch.Tensor,
    output: torch.Tensor,
    *,
    scaling: float,
    window: int | None,
    softcap: float | None,
) -> None:
    """Fill ``output`` ([tokens, num_heads, head_dim]) for ``query`` ([num_heads, tokens, head_dim])."""
    for bucket in step.buckets:
        keys, values = step.store.read(layer, bucket.slots)
        group = query.shape[0] // keys.shape[1]
        folded = _fold(query, bucket.query_rows, group)
        mask = bucket.mask(window, copies=group, dtype=query.dtype)
        if softcap is None:
            result = scaled_dot_product_attention(folded, keys, values, attn_mask=mask, scale=scaling)
        else:
            result = _softcapped(folded, keys, values, mask, scaling=scaling, softcap=softcap)
        unfolded = _unfold(result, group)
        output.index_copy_(0, bucket.output_rows, unfolded.index_select(0, bucket.result_rows))


def _fold(query: torch.Tensor, rows: torch.Tensor, group: int) -> torch.Tensor:
    """Queries ``[sequences, num_kv_heads, group * queries, head_dim]``.

    The heads that share K/V become more queries of one head, so K and V are never repeated.
    """
    num_heads, _, head_dim = query.shape
    sequences, queries = rows.shape
    picked = query.index_select(1, rows.flatten()).view(num_heads // group, group, sequences, queries, head_dim)
    return picked.permute(2, 0, 1, 3, 4).reshape(sequences, num_heads // group, group * queries, head_dim)


def _unfold(result: torch.Tensor, group: int) -> torch.Tensor:
    """Inverse of `_fold`, as ``[sequences * queries, num_heads, head_dim]``."""
    sequences, num_kv_heads, folded, head_dim = result.shape
    split = result.view(sequences, num_kv_heads, group, folded // group, head_dim)
    return split.permute(0, 3, 1, 2, 4).reshape(-1, num_kv_heads * group, head_dim)


def _softcapped(
    query: torch.Tensor,
    keys: torch.Tensor,
    values: torch.Tensor,
    mask: torch.Tensor,
    *,
    scaling: float,
    softcap: float,
) -> torch.Tensor:
    """Attention with scores bounded to ``softcap * tanh(score / softcap)`` (Gemma 2, 2024)."""
    scores = torch.matmul(query, keys.transpose(-1, -2)) * scaling
    scores = softcap * torch.tanh(scores / softcap) + mask
    weights = torch.softmax(scores, dim=-1, dtype=torch.float32).to(query.dtype)
    return torch.matmul(weights, values)
