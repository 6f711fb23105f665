"""The head of EAGLE-1 and EAGLE-2 (Li et al. 2024): one decoder layer over a mix of embedding and feature."""

from typing import Any

import torch
from transformers import PreTrainedConfig

from paceline.modeling.heads.draft_head import DraftHead
from paceline.modeling.heads.head_layers import decoder_layer, positions_of
from paceline.modeling.heads.head_spec import HeadSpec
from paceline.modeling.heads.target_weights import TargetWeights


class EagleHead(DraftHead):
    """``layer(fc([embedding; feature]))``; its first layer has no norm in front. Output: the next feature."""

    def __init__(
        self, spec: HeadSpec, config: PreTrainedConfig, target: TargetWeights, *, fc_bias: bool = False
    ) -> None:
        super().__init__(spec, config, target)
        self.fc = torch.nn.Linear(2 * config.hidden_size, config.hidden_size, bias=fc_bias)
        self.layers = torch.nn.ModuleList([decoder_layer(config, 0)])
        self.layers[0].input_layernorm = torch.nn.Identity()

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
        mixed = self.fc(torch.cat((embeddings, features), dim=-1))
        angles = self.rotary(mixed, positions_of(mixed, positions))
        hidden: torch.Tensor = self.layers[0](
            mixed, attention_mask=mask, position_embeddings=angles, use_cache=False, **attention
        )
        return hidden
