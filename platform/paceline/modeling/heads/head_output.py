"""What a pass of a head gives, and who gives it."""

from typing import NamedTuple, Protocol

import torch

from paceline.modeling.step_meta import StepMeta


class HeadOutput(NamedTuple):
    """Results of one pass over a flat batch."""

    logits: torch.Tensor  # [wanted, draft vocab] float32
    hidden: torch.Tensor  # [tokens, hidden]: the feature for a child of each token


class HeadNetwork(Protocol):
    """A head without its memory and its bookkeeping."""

    def run(self, step: StepMeta, features: torch.Tensor, depth: int) -> HeadOutput:
        """One pass over the tokens of ``step`` and their features ([tokens, hidden]); writes every token's K/V."""
