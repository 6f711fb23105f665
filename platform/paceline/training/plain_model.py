"""Targets as Transformers runs them: training needs gradients and whole batches, not pages."""

from pathlib import Path

import torch
from transformers import AutoModelForCausalLM, PreTrainedModel

from paceline.errors import ModelRefusedError
from paceline.modeling.loader import load_config, quiet_transformers


def load_plain(
    folder: Path, *, dtype: torch.dtype, num_layers: int | None = None, device: str = "cpu"
) -> PreTrainedModel:
    """The model in ``folder``, or its first ``num_layers`` layers; nothing of it learns yet.

    Raises ModelRefusedError for a family that is not tested, that is not laid out like Llama, or that has fewer layers.
    """
    config = load_config(folder)
    if num_layers is not None:
        if not 1 <= num_layers < config.num_hidden_layers:
            raise ModelRefusedError(
                f"A draft model of {num_layers} layers cannot be cut from a target of {config.num_hidden_layers}."
            )
        config.num_hidden_layers = num_layers
        if getattr(config, "layer_types", None):
            config.layer_types = config.layer_types[:num_layers]
    with quiet_transformers():
        model: PreTrainedModel = AutoModelForCausalLM.from_pretrained(
            folder,
            config=config,
            dtype=dtype,
            attn_implementation="sdpa",
            use_safetensors=True,
            trust_remote_code=False,
            local_files_only=True,
        )
    if not all(hasattr(getattr(model, "model", None), part) for part in ("layers", "norm", "embed_tokens")):
        raise ModelRefusedError(f"Drafters of this kind cannot be trained for the family '{config.model_type}'.")
    torch.nn.Module.to(model, device)
    model.train(mode=False)
    model.requires_grad_(requires_grad=False)
    return model
