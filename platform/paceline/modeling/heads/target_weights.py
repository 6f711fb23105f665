"""What heads share with their target: its embedding, its output head, its shape."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from transformers import PreTrainedConfig, PreTrainedModel

from paceline.errors import ModelRefusedError, ModelUnavailableError
from paceline.modeling.heads.head_tensors import safetensors_files
from paceline.modeling.loader import LoadedModel, load_config
from paceline.modeling.one_tensor import read_tensor
from paceline.modeling.packed_weight import PackedWeight

# Families whose embedding and output head are plain tables, and whose layers heads are made of.
HEAD_FAMILIES = ("llama", "mistral", "qwen2", "qwen3")
_EMBEDDING, _OUTPUT = "model.embed_tokens.weight", "lm_head.weight"


@dataclass(frozen=True, slots=True)
class TargetWeights:
    """Tensors of a target by reference: heads add nothing to them and never change them."""

    config: PreTrainedConfig  # of the target
    embedding: torch.Tensor  # [vocab, hidden]
    output: torch.Tensor | None  # [vocab, hidden] weight of the output head; None: packed, see `folder`
    packed_output: PackedWeight | None  # the target's own, where it runs compiled
    folder: Path | None  # that the target was loaded from

    @property
    def vocab_size(self) -> int:
        """Rows of the embedding and of the output head."""
        return self.embedding.shape[0]

    def output_rows(self, token_ids: Sequence[int] | None) -> torch.Tensor:
        """Rows ``[n, hidden]`` of the output head, all of them for None."""
        weight = self.output if self.output is not None else self._read_output()
        return weight if token_ids is None else weight.index_select(0, torch.tensor(token_ids, device=weight.device))

    def _read_output(self) -> torch.Tensor:
        if self.folder is None:
            raise ModelUnavailableError("The target's output head is packed, and its folder is not known.")
        return read_tensor(self.folder, _OUTPUT).to(self.embedding.dtype)


def weights_of_loaded(loaded: LoadedModel, folder: Path | None) -> TargetWeights:
    """Weights of a target of this process; ``folder`` is where it was loaded from.

    Raises ModelRefusedError for a family that heads do not know.
    """
    model = loaded.model
    _check_family(model.config)
    embedding: torch.Tensor = model.get_input_embeddings().weight.detach()  # type: ignore[operator]
    packed: PackedWeight | None = getattr(loaded.network, "packed_output", None)
    if model.config.tie_word_embeddings:
        return TargetWeights(model.config, embedding, embedding, packed, folder)
    output: torch.Tensor | None = getattr(model.get_output_embeddings(), "weight", None)  # type: ignore[no-untyped-call]
    return TargetWeights(model.config, embedding, None if output is None else output.detach(), packed, folder)


def weights_of_model(model: PreTrainedModel) -> TargetWeights:
    """Weights of a model as Transformers loaded it, for training."""
    _check_family(model.config)
    embedding = model.get_input_embeddings().weight.detach()  # type: ignore[operator]
    output = model.get_output_embeddings().weight.detach()  # type: ignore[no-untyped-call]
    return TargetWeights(model.config, embedding, output, None, None)


def weights_of_folder(folder: Path, *, dtype: torch.dtype, device: str = "cpu") -> TargetWeights:
    """Only the embedding and, if it is another tensor, the output head of the target in ``folder``.

    What a drafter needs that runs away from its target. Raises ModelRefusedError or ModelUnavailableError.
    """
    config = load_config(folder)
    _check_family(config)
    safetensors_files(folder)  # a pickle is the first thing to refuse
    embedding = read_tensor(folder, _EMBEDDING).to(device=device, dtype=dtype)
    if config.tie_word_embeddings:
        return TargetWeights(config, embedding, embedding, None, folder)
    output = read_tensor(folder, _OUTPUT).to(device=device, dtype=dtype)
    return TargetWeights(config, embedding, output, None, folder)


def _check_family(config: PreTrainedConfig) -> None:
    if config.model_type not in HEAD_FAMILIES:
        raise ModelRefusedError(
            f"Draft heads do not work with a target of the family '{config.model_type}'; they are made for "
            f"{', '.join(HEAD_FAMILIES)}. Use ngram or a draft model."
        )
