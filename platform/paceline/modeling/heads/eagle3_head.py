"""The head of EAGLE-3 (Li et al. 2025): attention over [embedding; fused feature], an output head of its own."""

from typing import Any

import torch
from transformers import PreTrainedConfig

from paceline.modeling.heads.draft_head import DraftHead
from paceline.modeling.heads.head_layers import decoder_layer, head_norm, positions_of
from paceline.modeling.heads.head_spec import HeadSpec
from paceline.modeling.heads.target_weights import TargetWeights


class Eagle3Head(DraftHead):
    """Reads features that the target has fused (`Fusion`); its own output takes their place at deeper levels."""

    def __init__(
        self, spec: HeadSpec, config: PreTrainedConfig, target: TargetWeights, *, norm_before_residual: bool = False
    ) -> None:
        super().__init__(spec, config, target)
        self.norm_before_residual = norm_before_residual
        layer = decoder_layer(config, 0)
        for name in ("q_proj", "k_proj", "v_proj"):
            narrow = getattr(layer.self_attn, name)
            wide = torch.nn.Linear(2 * config.hidden_size, narrow.out_features, bias=narrow.bias is not None)
            setattr(layer.self_attn, name, wide)
        layer.hidden_norm = head_norm(config)
        self.layers = torch.nn.ModuleList([layer])
        self.norm = head_norm(config)
        self.lm_head = torch.nn.Linear(config.hidden_size, spec.draft_vocab_size, bias=False)

    def output_weight(self, dtype: torch.dtype) -> torch.Tensor:
        """See `DraftHead.output_weight`; this head has rows of its own."""
        return self.lm_head.weight.to(dtype)

    def forward(
        self,
        embeddings: torch.Tensor,
        features: torch.Tensor,
        mask: torch.Tensor | None = None,
        *,
        positions: torch.Tensor | None = None,
        depth: int = 1,  # noqa: ARG002 - one layer serves every depth
        **attention: Any,
    ) -> torch.Tensor:
        """See `DraftHead.forward`."""
        layer: Any = self.layers[0]
        normed = layer.hidden_norm(features)
        residual = normed if self.norm_before_residual else features
        mixed = torch.cat((layer.input_layernorm(embeddings), normed), dim=-1)
        angles = self.rotary(features, positions_of(features, positions))
        attended, _ = layer.self_attn(hidden_states=mixed, attention_mask=mask, position_embeddings=angles, **attention)
        hidden = residual + attended
        result: torch.Tensor = hidden + layer.mlp(layer.post_attention_layernorm(hidden))
        return result

    def draft_logits(self, hidden: torch.Tensor, depth: int = 1) -> torch.Tensor:  # noqa: ARG002 - one norm for every depth
        """See `DraftHead.draft_logits`."""
        logits: torch.Tensor = self.lm_head(self.norm(hidden))
        return logits
