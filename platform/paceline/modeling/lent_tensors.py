"""Embedding and output head that a draft model leaves out, since they are its target's own."""

from collections.abc import Iterable
from pathlib import Path

import torch
from transformers import PreTrainedModel

from paceline.errors import ModelRefusedError
from paceline.modeling.one_tensor import read_tensor

EMBEDDING, OUTPUT = "model.embed_tokens.weight", "lm_head.weight"


def lend(model: PreTrainedModel, missing: Iterable[str], lender: Path) -> list[str]:
    """Fill the tables of ``model`` that are ``missing`` from the folder of its target; returns what is missing still.

    Raises ModelRefusedError for a table of another shape: the draft model was made for another target.
    """
    left = set(missing)
    tied = bool(model.config.tie_word_embeddings)
    for name in sorted(left & {EMBEDDING, OUTPUT}):
        source = EMBEDDING if tied else name
        own: torch.Tensor = model.get_parameter(source)
        lent = read_tensor(lender, source)
        if lent.shape != own.shape:
            raise ModelRefusedError(
                f"The draft model borrows '{source}' as {list(own.shape)}, but the target's is {list(lent.shape)}: it "
                "was made for another target."
            )
        with torch.no_grad():
            own.copy_(lent)
        left.discard(name)
    return sorted(left)
