"""Medusa's heads (Cai et al. 2024): residual blocks on the newest feature, one a future token."""

import torch
from torch.nn.functional import linear, silu

from paceline.modeling.heads.head_spec import HeadSpec
from paceline.modeling.heads.target_weights import TargetWeights


class ResidualBlock(torch.nn.Module):
    """``x + silu(layer(x))``, once or more; with weights of zero it passes ``x`` through."""

    def __init__(self, size: int, num_layers: int, *, bias: bool) -> None:
        super().__init__()
        self.layers = torch.nn.ModuleList([torch.nn.Linear(size, size, bias=bias) for _ in range(num_layers)])

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """``[..., size]``."""
        for layer in self.layers:
            x = x + silu(layer(x))
        return x


class MedusaHead(torch.nn.Module):
    """Head k (from 0) reads the feature of token t, the newest known, and predicts token t + k + 1.

    ``num_outputs`` output heads are their own: none (the target's rows serve all), one for all, or one each.
    """

    def __init__(
        self,
        spec: HeadSpec,
        target: TargetWeights,
        *,
        num_layers: int = 1,
        bias: bool = True,
        num_outputs: int = 0,
    ) -> None:
        super().__init__()
        self.spec = spec
        self.target = target
        self._output: torch.Tensor | None = None  # the target's rows, once asked for
        size = spec.hidden_size
        self.blocks = torch.nn.ModuleList([ResidualBlock(size, num_layers, bias=bias) for _ in range(spec.num_modules)])
        self.lm_heads = torch.nn.ModuleList(
            [torch.nn.Linear(size, spec.draft_vocab_size, bias=False) for _ in range(num_outputs)]
        )

    def output_weight(self, head: int, dtype: torch.dtype) -> torch.Tensor:
        """``[draft vocab, hidden]`` of one head: its own, or the target's rows, converted once."""
        if len(self.lm_heads):
            weight: torch.Tensor = self.lm_heads[min(head, len(self.lm_heads) - 1)].weight  # type: ignore[assignment]
            return weight.to(dtype)
        if self._output is None or self._output.dtype is not dtype:
            self._output = self.target.output_rows(self.spec.draft_token_ids).to(dtype)
        return self._output

    def hidden(self, features: torch.Tensor) -> torch.Tensor:
        """``[heads, ..., hidden]`` of ``features`` ([..., hidden])."""
        return torch.stack([block(features) for block in self.blocks])

    def draft_logits(self, hidden: torch.Tensor) -> torch.Tensor:
        """``[heads, ..., draft vocab]`` from what `hidden` gave."""
        return torch.stack([linear(row, self.output_weight(head, row.dtype)) for head, row in enumerate(hidden)])

    def forward(self, features: torch.Tensor) -> torch.Tensor:
        """Logits ``[heads, ..., draft vocab]`` of ``features`` ([..., hidden])."""
        return self.draft_logits(self.hidden(features))
