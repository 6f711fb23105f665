"""Attention over pages, as an attention function of Transformers."""

from typing import Any

import torch
from torch.nn.functional import scaled_dot_product_attention
from transformers import AttentionInterface

from paceline.modeling.step_meta import StepMeta

ATTENTION_NAME = "paceline"


def attend(
    module: torch.nn.Module,
    query: torch.Tensor,  # [1, num_heads, tokens, head_dim]
    key: torch.Tensor,  # [1, num_kv_heads, tokens, head_dim]
    value: torch.Tensor,
    attention_mask: torch.Tensor | None,  # noqa: ARG001 - always None: no mask is registered under this name
    *,
    step: StepMeta,
    scaling: float,
    sliding_window: int | None = None,
    softcap: float | None = None,
    **_: Any,
) -> tuple[torch.Tensor, None]:
    """Store this pass's K/V, then let every query read its own sequence.

    Returns ``[1, tokens, num_heads, head_dim]``. Tokens that only pad the flat batch come last; they
    are not stored and their output is zero.
    """
    layer = int(module.layer_idx)  # type: ignore[arg-type]
    num_tokens = step.num_tokens
    step.store.write(
        layer, step.write_slots, key[0, :, :num_tokens].transpose(0, 1), value[0, :, :num_tokens].transpose(0, 1)
    )
    num_heads = query.shape[1]
    output = query.new_zeros(query.shape[2], num_heads, query.shape[3])
    group = num_heads // key.shape[1]
    for bucket in step.buckets:
        keys, values = step.store.read(layer, bucket.slots)
        folded = _fold(query[0], bucket.query_rows, group)
        mask = bucket.mask(sliding_window, copies=group, dtype=query.dtype)
        if softcap is None:
            result = scaled_dot_product_attention(folded, keys, values, attn_mask=mask, scale=scaling)
        else:
            result = _softcapped(folded, keys, values, mask, scaling=scaling, softcap=softcap)
        unfolded = _unfold(result, group)
        output.index_copy_(0, bucket.output_rows, unfolded.index_select(0, bucket.result_rows))
    return output.unsqueeze(0), None


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


def register_attention() -> None:
    """Make `attend` known to Transformers; calling it again changes nothing."""
    AttentionInterface.register(ATTENTION_NAME, attend)
