"""Attention over pages, as an attention function of Transformers: compiled on CPU, else in torch."""

from typing import Any

import torch
from transformers import AttentionInterface

from paceline.kernels.decoder_layers import decoder_kernels
from paceline.modeling.compiled_attention import attend_compiled
from paceline.modeling.packed_weight import PACKABLE
from paceline.modeling.step_meta import StepMeta
from paceline.modeling.torch_attention import attend_in_torch

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
    stored = slice(0, step.num_tokens)
    step.store.write(layer, step.write_slots, key[0, :, stored].transpose(0, 1), value[0, :, stored].transpose(0, 1))
    output = query.new_zeros(query.shape[2], query.shape[1], query.shape[3])
    kernels = decoder_kernels() if _fits_kernel(query) else None
    if kernels is None:
        attend_in_torch(step, layer, query[0], output, scaling=scaling, window=sliding_window, softcap=softcap)
    else:
        attend_compiled(kernels, step, layer, query[0], output, scaling=scaling, window=sliding_window, softcap=softcap)
    return output.unsqueeze(0), None


def _fits_kernel(query: torch.Tensor) -> bool:
    """The kernel takes two dimensions of a half-precision head at a time."""
    return query.is_cpu and query.dtype in PACKABLE and query.shape[3] % 2 == 0


def register_attention() -> None:
    """Make `attend` known to Transformers; calling it again changes nothing."""
    AttentionInterface.register(ATTENTION_NAME, attend)
