"""A draft model cut from its target: the target's first layers, its embedding and some rows of its head.

Only the layers and the last norm learn. Embedding and head stay the target's own, so the folder need not hold them,
and a reduced draft vocabulary is a choice of rows.
"""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch.nn.functional import linear
from transformers import PreTrainedModel

from paceline.errors import ConfigError
from paceline.modeling.heads.draft_vocabulary import write_vocabulary
from paceline.training.plain_model import load_plain

_WEIGHTS = "model.safetensors"
_LENT = ("model.embed_tokens.weight", "lm_head.weight")
_TOKENIZER_FILES = ("tokenizer.json", "tokenizer_config.json", "special_tokens_map.json", "generation_config.json")


class DraftModel(torch.nn.Module):
    """The first layers of a target with its last norm, made to predict as the whole target does."""

    def __init__(self, model: PreTrainedModel, draft_token_ids: Sequence[int]) -> None:
        """Wrap ``model``, which has as many layers as the draft model shall have; freezes what is the target's."""
        super().__init__()
        self.draft_token_ids = tuple(draft_token_ids)
        self.model = model
        model.requires_grad_(requires_grad=False)
        model.model.layers.requires_grad_(requires_grad=True)
        model.model.norm.requires_grad_(requires_grad=True)
        rows = torch.tensor(self.draft_token_ids)
        head: torch.Tensor = model.get_output_embeddings().weight.detach()  # type: ignore[no-untyped-call]
        self.register_buffer("head", head[rows].clone(), persistent=False)  # [draft vocab, hidden]

    def forward(self, token_ids: torch.Tensor) -> torch.Tensor:
        """Hidden states ``[batch, tokens, hidden]`` after the last norm; padding stands at the end."""
        hidden: torch.Tensor = self.model.model(input_ids=token_ids, use_cache=False).last_hidden_state
        return hidden

    def draft_logits(self, hidden: torch.Tensor) -> torch.Tensor:
        """``[..., draft vocab]``."""
        head: torch.Tensor = self.head  # type: ignore[assignment]
        return linear(hidden, head.to(hidden.dtype))

    def learning(self) -> list[torch.nn.Parameter]:
        """The parameters that are trained."""
        return [parameter for parameter in self.model.parameters() if parameter.requires_grad]

    def learnt(self) -> dict[str, torch.Tensor]:
        """Tensors that the target lacks, by their names in the checkpoint."""
        names = {name for name, parameter in self.model.named_parameters() if parameter.requires_grad}
        return {name: tensor for name, tensor in self.model.state_dict().items() if name in names}


def new_draft_model(target_folder: Path, *, num_layers: int, draft_token_ids: Sequence[int]) -> DraftModel:
    """A draft model that begins with the first ``num_layers`` layers of the target in ``target_folder``; float32.

    Raises ModelRefusedError for a target with fewer layers, or with another layout than Llama's.
    """
    return DraftModel(load_plain(target_folder, dtype=torch.float32, num_layers=num_layers), draft_token_ids)


def save_draft_model(draft: DraftModel, folder: Path, *, target_folder: Path, whole: bool = False) -> None:
    """Write a folder that the method ``draft_model`` loads; bfloat16.

    ``whole`` writes embedding, head and tokenizer too, so that anything that reads Transformers folders reads it
    without the target.
    """
    folder.mkdir(parents=True, exist_ok=True)
    tensors = draft.learnt()
    if whole:
        tensors |= {name: tensor for name, tensor in draft.model.state_dict().items() if name in _LENT}
        if draft.model.config.tie_word_embeddings:
            tensors.pop("lm_head.weight", None)
    kept = {name: tensor.detach().to(torch.bfloat16).contiguous() for name, tensor in tensors.items()}
    save_file(kept, folder / _WEIGHTS, metadata={"format": "pt"})
    body: dict[str, Any] = draft.model.config.to_dict() | {"torch_dtype": "bfloat16", "dtype": "bfloat16"}
    (folder / "config.json").write_text(json.dumps(body, indent=1) + "\n", "utf-8")
    write_vocabulary(folder, draft.draft_token_ids)
    if whole:
        for name in _TOKENIZER_FILES:
            if (target_folder / name).is_file():
                (folder / name).write_bytes((target_folder / name).read_bytes())


def read_learnt(folder: Path) -> dict[str, torch.Tensor]:
    """What `save_draft_model` wrote of the layers and the last norm. Raises ConfigError for another folder."""
    try:
        tensors = load_file(folder / _WEIGHTS)
    except (OSError, SafetensorError) as error:
        raise ConfigError(f"{folder} is no draft model to begin with: {error}") from error
    return {name: tensor for name, tensor in tensors.items() if name not in _LENT}


def load_learnt(draft: DraftModel, tensors: dict[str, torch.Tensor]) -> None:
    """Put what `DraftModel.learnt` gave back. Raises ConfigError for tensors of another draft model."""
    own = draft.learnt()
    if own.keys() != tensors.keys() or any(own[name].shape != tensors[name].shape for name in own):
        raise ConfigError("That draft model has other layers; give --layers as many as it has.")
    with torch.no_grad():
        for name, tensor in own.items():
            tensor.copy_(tensors[name])
