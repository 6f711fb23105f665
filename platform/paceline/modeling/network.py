"""The arithmetic of one pass, behind one signature."""

from typing import Protocol

import torch
from transformers import PreTrainedModel

from paceline.modeling.step_meta import StepMeta

# A linear layer takes another code path for fewer rows, with other last bits: a pass through
# Transformers' modules is padded to this many tokens, and its head to as many logits.
MIN_ROWS = 4


class Network(Protocol):
    """A model without its cache and its bookkeeping."""

    def logits(self, step: StepMeta) -> torch.Tensor:
        """Float32 logits ``[wanted rows, vocab]`` of a pass; writes the K/V of every token."""


class ModuleNetwork:
    """Runs the modules of Transformers, with attention over pages in place of their own."""

    def __init__(self, model: PreTrainedModel) -> None:
        self._model = model

    def logits(self, step: StepMeta) -> torch.Tensor:
        """See `Network.logits`."""
        num_wanted = len(step.wanted)
        output = self._model(
            input_ids=_padded(step.token_ids, 0).unsqueeze(0),
            position_ids=_padded(step.positions, 0).unsqueeze(0),
            use_cache=False,
            step=step,
            logits_to_keep=_padded(step.wanted, 0) if num_wanted else step.wanted,
        )
        logits: torch.Tensor = output.logits
        return logits[0, :num_wanted].float()


def _padded(values: torch.Tensor, filler: int) -> torch.Tensor:
    missing = MIN_ROWS - len(values)
    return torch.cat((values, values.new_full((missing,), filler))) if missing > 0 else values
