"""Weights of one decoder layer as the compiled layers read them."""

from typing import Any

import torch
from transformers import PreTrainedConfig

from paceline.kernels import decoder_layers as records
from paceline.kernels.decoder_layers import pointer
from paceline.modeling.packed_weight import PackedWeight


class CompiledLayer:
    """Packs a layer of Llama, Mistral, Qwen2 or Qwen3: projections that read the same input become one."""

    def __init__(self, layer: Any, config: PreTrainedConfig) -> None:
        attention, mlp = layer.self_attn, layer.mlp
        self.head_dim = int(attention.head_dim)
        self.num_heads = int(config.num_attention_heads)
        self.num_kv_heads = int(config.num_key_value_heads)
        self.scaling = float(attention.scaling)
        self.qkv = _packed(attention.q_proj, attention.k_proj, attention.v_proj)
        self.out = _packed(attention.o_proj)
        self.gate_up = _packed(mlp.gate_proj, mlp.up_proj, gated=True)
        self.down = _packed(mlp.down_proj)
        self._input_norm = _norm_weight(layer, "input_layernorm")
        self._post_norm = _norm_weight(layer, "post_attention_layernorm")
        self._query_norm = _norm_weight(attention, "q_norm")
        self._key_norm = _norm_weight(attention, "k_norm")
        self._window = _window(attention, config)

    @property
    def widths(self) -> tuple[int, int, int, int]:
        """Elements per token of what lies between the layer's steps: normed, qkv, mixed, active."""
        return self.qkv.in_features, self.qkv.columns, self.out.in_features, self.down.in_features

    def record(self, keys: torch.Tensor, values: torch.Tensor) -> records.DecoderLayer:
        """Addresses of the weights and of the layer's K and V; this object and both tensors must outlive it."""
        return records.DecoderLayer(
            qkv=_record(self.qkv),
            out=_record(self.out),
            gate_up=_record(self.gate_up),
            down=_record(self.down),
            input_norm=pointer(self._input_norm),
            post_norm=pointer(self._post_norm),
            query_norm=pointer(self._query_norm),
            key_norm=pointer(self._key_norm),
            keys=pointer(keys),
            values=pointer(values),
            window=self._window,
        )


def _packed(*linears: torch.nn.Linear, gated: bool = False) -> PackedWeight:
    return PackedWeight([linear.weight for linear in linears], [linear.bias for linear in linears], gated=gated)


def _record(weight: PackedWeight) -> records.PackedWeight:
    return records.PackedWeight(weight=pointer(weight.panels), bias=pointer(weight.bias))


def _norm_weight(module: Any, name: str) -> torch.Tensor | None:
    """A copy, as the original views the mapped weight file; None where ``module`` has no such norm."""
    weight: torch.Tensor | None = getattr(getattr(module, name, None), "weight", None)
    return None if weight is None else weight.detach().clone()


def _window(attention: Any, config: PreTrainedConfig) -> int:
    """Sliding window in tokens; 0 where the layer sees everything."""
    if config.model_type == "mistral":
        return int(config.sliding_window or 0)
    return int(getattr(attention, "sliding_window", None) or 0)
