"""Attention of a head that reads its own guesses, over whole dialogues at once (training-time test of EAGLE-3, 2025).

In serving a draft at depth s sees K/V of the context, made from the target's features, and K/V of the drafts above it,
made from the head's own. Here all places of a dialogue are such a draft at the same time: at step s the query at
token u sees the keys of step 1 up to u - s + 1, and of each step i from 2 to s the one key at u - s + i.
"""

from typing import Any

import torch
from torch.nn.functional import scaled_dot_product_attention
from transformers import AttentionInterface

from paceline.modeling.heads.draft_head import DraftHead

ATTENTION_NAME = "paceline_unrolled"


class StepKeys:
    """K and V of a module's steps so far, and who sees which."""

    def __init__(self, first: int = 0) -> None:
        """``first``: the first token that the module has something to read at."""
        self._first = first
        self._keys: list[torch.Tensor] = []  # a step each: [batch, kv heads, tokens, head dim]
        self._values: list[torch.Tensor] = []

    def add(self, key: torch.Tensor, value: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """All steps side by side, this one last: ``[batch, kv heads, steps * tokens, head dim]``."""
        self._keys.append(key)
        self._values.append(value)
        return torch.cat(self._keys, dim=2), torch.cat(self._values, dim=2)

    def mask(self, num_tokens: int, device: torch.device) -> torch.Tensor | None:
        """``[tokens, steps * tokens]``, True where a query of the newest step sees a key; None for plain causal."""
        steps = len(self._keys)
        if steps == 1 and self._first == 0:
            return None
        places = torch.arange(num_tokens, device=device)
        behind = places[:, None] - places  # how far the key's token lies behind the query's
        context = (behind >= steps - 1) & (places >= self._first)
        drafts = [behind == steps - step for step in range(2, steps + 1)]
        seen = torch.cat([context, *drafts], dim=1)
        # A token that the module has nothing to read at sees itself, so that its numbers stay finite.
        seen[:, (steps - 1) * num_tokens :] |= behind == 0
        return seen


def use_unrolled_attention(head: DraftHead) -> None:
    """Let the layers of ``head`` take ``keys=StepKeys(...)``; without, they attend causally."""
    AttentionInterface.register(ATTENTION_NAME, _attend)
    head.config._attn_implementation = ATTENTION_NAME  # noqa: SLF001 - Transformers' name for it


def _attend(
    module: torch.nn.Module,  # noqa: ARG001 - the signature is Transformers'
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: torch.Tensor | None,
    *,
    scaling: float,
    keys: StepKeys | None = None,
    **_: Any,
) -> tuple[torch.Tensor, None]:
    """``[batch, tokens, heads, head dim]`` from ``[batch, heads, tokens, head dim]``."""
    mask = attention_mask
    if keys is not None:
        key, value = keys.add(key, value)
        mask = keys.mask(query.shape[2], query.device)
    group = query.shape[1] // key.shape[1]
    output = scaled_dot_product_attention(
        query,
        key.repeat_interleave(group, dim=1),
        value.repeat_interleave(group, dim=1),
        attn_mask=mask,
        is_causal=mask is None,
        scale=scaling,
    )
    return output.transpose(1, 2), None
