"""A model as Transformers runs it itself, for comparisons."""

from dataclasses import dataclass
from pathlib import Path

import torch
from transformers import AutoModelForCausalLM, PreTrainedModel
from transformers.utils import logging as transformers_logging

DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}


@dataclass(frozen=True, slots=True)
class ModelSpec:
    """The model that all candidates run."""

    folder: Path
    dtype: str
    cache_tokens: int


def load_stock(spec: ModelSpec, attention: str) -> PreTrainedModel:
    """The model as Transformers runs it itself."""
    transformers_logging.disable_progress_bar()  # type: ignore[no-untyped-call]
    model: PreTrainedModel = AutoModelForCausalLM.from_pretrained(
        spec.folder, attn_implementation=attention, dtype=DTYPES[spec.dtype], local_files_only=True
    )
    model.train(mode=False)
    return model
