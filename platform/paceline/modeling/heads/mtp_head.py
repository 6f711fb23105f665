"""Multi-token prediction: modules as in DeepSeek-V3 (2024), or independent heads (Gloeckle et al. 2024)."""

from typing import Any

import torch
from transformers import PreTrainedConfig

from paceline.modeling.heads.draft_head import DraftHead
from paceline.modeling.heads.head_layers import decoder_layer, head_norm, positions_of
from paceline.modeling.heads.head_spec import HeadSpec
from paceline.modeling.heads.target_weights import TargetWeights


class MtpModule(torch.nn.Module):
    """One module; sequential ones mix the normed embedding and the normed feature, parallel ones read the feature."""

    def __init__(self, config: PreTrainedConfig, index: int, *, parallel: bool) -> None:
        super().__init__()
        if not parallel:
            self.enorm = head_norm(config)
            self.hnorm = head_norm(config)
            self.eh_proj = torch.nn.Linear(2 * config.hidden_size, config.hidden_size, bias=False)
        self.layer = decoder_layer(config, index)
        self.norm = head_norm(config)  # before the shared output head
        self._parallel = parallel

    def mix(self, embeddings: torch.Tensor, features: torch.Tensor) -> torch.Tensor:
        """What the decoder layer reads."""
        if self._parallel:
            return features
        mixed: torch.Tensor = self.eh_proj(torch.cat((self.enorm(embeddings), self.hnorm(features)), dim=-1))
        return mixed


class MtpHead(DraftHead):
    """Module k predicts from the hidden state of module k - 1, the last one again for whatever lies deeper.

    Parallel modules all read the target's feature: module k at token t predicts token t + k.
    """

    def __init__(self, spec: HeadSpec, config: PreTrainedConfig, target: TargetWeights) -> None:
        super().__init__(spec, config, target)
        parallel = spec.variant == "parallel"
        self.mtp = torch.nn.ModuleList([MtpModule(config, i, parallel=parallel) for i in range(spec.num_modules)])

    def module_at(self, depth: int) -> Any:
        """The module that drafts at ``depth`` (1: the first draft token)."""
        return self.mtp[min(depth, self.spec.num_modules) - 1]

    def forward(
        self,
        embeddings: torch.Tensor,
        features: torch.Tensor,
        mask: torch.Tensor | None = None,
        *,
        positions: torch.Tensor | None = None,
        depth: int = 1,
        **attention: Any,
    ) -> torch.Tensor:
        """See `DraftHead.forward`; the result has not passed the module's norm."""
        module = self.module_at(depth)
        mixed = module.mix(embeddings, features)
        angles = self.rotary(mixed, positions_of(mixed, positions))
        hidden: torch.Tensor = module.layer(
            mixed, attention_mask=mask, position_embeddings=angles, use_cache=False, **attention
        )
        return hidden

    def output_input(self, hidden: torch.Tensor, depth: int = 1) -> torch.Tensor:
        """See `DraftHead.output_input`: it has passed the module's norm."""
        normed: torch.Tensor = self.module_at(depth).norm(hidden)
        return normed
