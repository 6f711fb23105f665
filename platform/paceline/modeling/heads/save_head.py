"""Writes trained heads: EAGLE and Medusa as vLLM reads them, EAGLE-3 as speculators does, MTP as DeepSeek-V3 does."""

import json
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

import torch
from safetensors.torch import save_file
from transformers import PreTrainedConfig

from paceline.modeling.heads.checkpoint import Head
from paceline.modeling.heads.draft_vocabulary import write_vocabulary
from paceline.modeling.heads.eagle_head import EagleHead
from paceline.modeling.heads.layout import NUM_MODULES
from paceline.modeling.heads.medusa_head import MedusaHead
from paceline.modeling.heads.mtp_head import MtpHead
from paceline.modeling.heads.read_mtp import OUTER_NAMES, PARALLEL

WEIGHTS_FILE = "model.safetensors"
# Other engines look a head's class up by that of a model of its family.
_ARCHITECTURES: Mapping[str, str] = MappingProxyType(
    {
        "llama": "LlamaForCausalLM",
        "mistral": "MistralForCausalLM",
        "qwen2": "Qwen2ForCausalLM",
        "qwen3": "Qwen3ForCausalLM",
    }
)


def save_head(head: Head, folder: Path, *, dtype: torch.dtype = torch.bfloat16, with_output: bool = False) -> None:
    """Write ``head`` to ``folder``, weights in ``dtype``; `load_head` reads it back.

    The target's embedding and output head are not written. vLLM needs Medusa's output head in the file:
    ``with_output`` writes the target's rows there.
    """
    folder.mkdir(parents=True, exist_ok=True)
    if isinstance(head, MedusaHead):
        config, tensors = _medusa(head, with_output=with_output)
    elif isinstance(head, MtpHead):
        config, tensors = _mtp(head)
        write_vocabulary(folder, head.spec.draft_token_ids)
    elif isinstance(head, EagleHead):
        config = _layer_dict(head.config)
        tensors = dict(head.named_parameters())
        write_vocabulary(folder, head.spec.draft_token_ids)
    else:
        raise TypeError(f"{type(head).__name__} is not trained here")
    _write(folder, config, tensors, dtype)


def _medusa(head: MedusaHead, *, with_output: bool) -> tuple[dict[str, Any], dict[str, torch.Tensor]]:
    spec = head.spec
    tensors: dict[str, torch.Tensor] = dict(head.named_parameters())
    if with_output and not len(head.lm_heads):
        tensors["lm_head.weight"] = head.output_weight(0, head.target.embedding.dtype)
    if spec.draft_token_ids is not None:
        tensors["token_map"] = torch.tensor(spec.draft_token_ids)
    config = {
        "model_type": "medusa",
        "architectures": ["MedusaModel"],
        "hidden_size": spec.hidden_size,
        "vocab_size": spec.vocab_size,
        "truncated_vocab_size": spec.draft_vocab_size,
        "num_heads": spec.num_modules,
        "num_hidden_layers": len(head.blocks[0].layers),  # type: ignore[arg-type]
        "medusa_fc_bias": "blocks.0.layers.0.bias" in tensors,
        "original_lm_head": len(head.lm_heads) < spec.num_modules,
    }
    return config, tensors


def _mtp(head: MtpHead) -> tuple[dict[str, Any], dict[str, torch.Tensor]]:
    first = head.target.config.num_hidden_layers
    tensors: dict[str, torch.Tensor] = {}
    for index in range(head.spec.num_modules):
        for name, parameter in head.module_at(index + 1).named_parameters():
            part, _, rest = name.partition(".")
            theirs = rest if part == "layer" else f"{OUTER_NAMES[part]}.{rest}"
            tensors[f"model.layers.{first + index}.{theirs}"] = parameter
    config = {**_layer_dict(head.config), "num_hidden_layers": first, NUM_MODULES: head.spec.num_modules}
    if head.spec.variant == "parallel":
        config[PARALLEL] = True
    return config, tensors


def _layer_dict(config: PreTrainedConfig) -> dict[str, Any]:
    """What describes a decoder layer, without what describes how a model was loaded."""
    dropped = ("_name_or_path", "dtype", "layer_types", "transformers_version")
    kept = {key: value for key, value in config.to_dict().items() if key not in dropped}
    return {**kept, "architectures": [_ARCHITECTURES[config.model_type]]}


def _write(folder: Path, config: dict[str, Any], tensors: Mapping[str, torch.Tensor], dtype: torch.dtype) -> None:
    """Each file appears whole; the config comes last."""
    saved = {name: _plain(tensor, dtype) for name, tensor in tensors.items()}
    unfinished = folder / f".{WEIGHTS_FILE}"
    save_file(saved, unfinished, metadata={"format": "pt"})
    unfinished.chmod(0o644)  # safetensors makes files that only their owner may read
    unfinished.replace(folder / WEIGHTS_FILE)
    config = {**config, "dtype": str(dtype).removeprefix("torch.")}
    (folder / "config.json").write_text(json.dumps(config, indent=2, sort_keys=True) + "\n", "utf-8")


def _plain(tensor: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    tensor = tensor.detach().cpu()
    return (tensor.to(dtype) if tensor.is_floating_point() else tensor).contiguous().clone()
