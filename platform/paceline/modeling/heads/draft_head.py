"""What all heads with a decoder layer have in common."""

from abc import abstractmethod
from typing import Any

import torch
from torch.nn.functional import linear
from transformers import PreTrainedConfig

from paceline.modeling.heads.head_layers import rotary_embedding
from paceline.modeling.heads.head_spec import HeadSpec
from paceline.modeling.heads.target_weights import TargetWeights


class DraftHead(torch.nn.Module):
    """A head that reads (embedding of token t, feature of token t) and predicts token t + 1.

    The target's tensors are held by reference: they are no parameters of the head, and never saved with it.
    """

    def __init__(self, spec: HeadSpec, config: PreTrainedConfig, target: TargetWeights) -> None:
        super().__init__()
        self.spec = spec
        self.config = config  # of the decoder layers
        self.target = target
        self._output: torch.Tensor | None = None  # the target's rows, once asked for
        self.rotary = rotary_embedding(config)

    def embed(self, token_ids: torch.Tensor) -> torch.Tensor:
        """The target's embedding of ``token_ids`` (any shape)."""
        return self.target.embedding[token_ids]

    def output_weight(self, dtype: torch.dtype) -> torch.Tensor:
        """``[draft vocab, hidden]``: the target's rows of the draft vocabulary, converted once."""
        if self._output is None or self._output.dtype is not dtype:
            self._output = self.target.output_rows(self.spec.draft_token_ids).to(dtype)
        return self._output

    @abstractmethod
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
        """``[batch, tokens, hidden]``: the feature of each token's child, from two inputs of that shape.

        ``mask`` ([batch, 1, tokens, tokens], True or 0 where a query sees a key) is causal by default; ``depth``
        picks the module of MTP. ``attention`` goes to the attention function.
        """

    def output_input(self, hidden: torch.Tensor, depth: int = 1) -> torch.Tensor:  # noqa: ARG002 - MTP's norm differs by module
        """``[..., hidden]``: what the output head reads of what `forward` gave."""
        return hidden

    def draft_logits(self, hidden: torch.Tensor, depth: int = 1) -> torch.Tensor:
        """``[..., draft vocab]`` from what `forward` gave."""
        hidden = self.output_input(hidden, depth)
        return linear(hidden, self.output_weight(hidden.dtype))
