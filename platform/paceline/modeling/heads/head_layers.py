"""Decoder layers of a head: Transformers' own modules, of the target's family."""

import copy
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

import torch
from transformers import PreTrainedConfig
from transformers.models.llama.modeling_llama import LlamaDecoderLayer, LlamaRMSNorm, LlamaRotaryEmbedding
from transformers.models.mistral.modeling_mistral import MistralDecoderLayer, MistralRotaryEmbedding
from transformers.models.qwen2.modeling_qwen2 import Qwen2DecoderLayer, Qwen2RotaryEmbedding
from transformers.models.qwen3.modeling_qwen3 import Qwen3DecoderLayer, Qwen3RotaryEmbedding

_FAMILIES: Mapping[str, tuple[Any, Any]] = MappingProxyType(
    {
        "llama": (LlamaDecoderLayer, LlamaRotaryEmbedding),
        "mistral": (MistralDecoderLayer, MistralRotaryEmbedding),
        "qwen2": (Qwen2DecoderLayer, Qwen2RotaryEmbedding),
        "qwen3": (Qwen3DecoderLayer, Qwen3RotaryEmbedding),
    }
)


def head_config(base: PreTrainedConfig, num_layers: int) -> PreTrainedConfig:
    """A copy of ``base`` for a head of ``num_layers`` layers.

    They see the whole context, also where the family has a sliding window: a head is shown texts much shorter than
    the windows that targets have, and nothing but its acceptance depends on it.
    """
    config = copy.deepcopy(base)
    config.num_hidden_layers = num_layers
    if getattr(config, "layer_types", None):
        config.layer_types = ["full_attention"] * num_layers
    for field in ("sliding_window", "use_sliding_window"):
        if hasattr(config, field):
            setattr(config, field, None if field == "sliding_window" else False)
    config._attn_implementation = "sdpa"  # noqa: SLF001 - Transformers' name for it
    return config


def decoder_layer(config: PreTrainedConfig, index: int) -> Any:
    """A layer of the family of ``config`` with random weights; ``index`` is its place in the head's K/V store."""
    return _FAMILIES[config.model_type][0](config, index)


def rotary_embedding(config: PreTrainedConfig) -> torch.nn.Module:
    """Rotary angles by position, as the family of ``config`` computes them."""
    module: torch.nn.Module = _FAMILIES[config.model_type][1](config)
    return module


def head_norm(config: PreTrainedConfig) -> torch.nn.Module:
    """A root-mean-square norm over the hidden size."""
    norm: torch.nn.Module = LlamaRMSNorm(config.hidden_size, eps=config.rms_norm_eps)
    return norm


def positions_of(hidden: torch.Tensor, positions: torch.Tensor | None) -> torch.Tensor:
    """``positions`` ([batch, tokens] int64), by default 0, 1, 2, ... in each row of ``hidden``."""
    if positions is not None:
        return positions
    return torch.arange(hidden.shape[1], device=hidden.device).expand(hidden.shape[0], -1)
