"""Which models run here, and why others do not.

A model outside these families might load, run and be wrong; each family below is compared with
its own stock forward pass in ``tests/equivalence/modeling``.
"""

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from types import MappingProxyType

from transformers import PreTrainedConfig

from paceline.errors import ModelRefusedError

TESTED_FAMILIES: Mapping[str, str] = MappingProxyType(
    {
        "llama": "Llama",
        "qwen2": "Qwen2",
        "qwen3": "Qwen3",
        "qwen3_moe": "Qwen3-MoE",
        "mistral": "Mistral",
        "gemma": "Gemma",
        "gemma2": "Gemma 2",
        "gemma3_text": "Gemma 3 (text)",
        "phi3": "Phi-3",
        "olmo2": "OLMo 2",
        "granite": "Granite",
    }
)

_LAYER_TYPES = frozenset({"full_attention", "sliding_attention"})
_ROPE_TYPES = frozenset({"default", "linear", "llama3", "yarn"})  # those whose frequencies never depend on length


def check_config(config: PreTrainedConfig) -> None:
    """Raise ModelRefusedError, with one sentence, for a model that would be wrong or fail here."""
    for check in _CHECKS:
        complaint = check(config)
        if complaint:
            raise ModelRefusedError(f"The model is refused: {complaint}.")


def check_files(folder: Path) -> None:
    """Raise ModelRefusedError unless ``folder`` holds its weights as safetensors."""
    if any(folder.glob("*.safetensors")):
        return
    if any(folder.glob("*.bin")) or any(folder.glob("*.pt")) or any(folder.glob("*.pth")):
        raise ModelRefusedError(
            f"The weights in {folder} are pickles, which can run code when loaded; convert them to safetensors."
        )
    raise ModelRefusedError(
        f"The folder {folder} holds no *.safetensors files; download the whole model, or convert it."
    )


def _modality(config: PreTrainedConfig) -> str | None:
    for field in ("vision_config", "audio_config", "text_config"):
        if getattr(config, field, None) is not None:
            return f"it is multimodal ('{field}'); serve its text-only variant"
    return None


def _direction(config: PreTrainedConfig) -> str | None:
    if config.is_encoder_decoder or getattr(config, "add_cross_attention", False):
        return "it has an encoder; only decoder-only models are served"
    if getattr(config, "use_bidirectional_attention", False):
        return "it attends in both directions ('use_bidirectional_attention'), so it cannot generate"
    return None


def _family(config: PreTrainedConfig) -> str | None:
    if config.model_type in TESTED_FAMILIES:
        return None
    families = ", ".join(TESTED_FAMILIES.values())
    code = " and would run code from its repository ('auto_map')" if getattr(config, "auto_map", None) else ""
    return f"its architecture '{config.model_type}' is not tested here{code}; tested are {families}"


def _head(config: PreTrainedConfig) -> str | None:
    for architecture in config.architectures or ():
        if not architecture.endswith("ForCausalLM"):
            return f"it is a {architecture}, not a causal language model"
    return None


def _quantised(config: PreTrainedConfig) -> str | None:
    if getattr(config, "quantization_config", None):
        return "its weights are quantised ('quantization_config'); use the original weights"
    return None


def _layer_types(config: PreTrainedConfig) -> str | None:
    for layer_type in getattr(config, "layer_types", None) or ():
        if layer_type not in _LAYER_TYPES:
            return f"it has '{layer_type}' layers; only full and sliding attention are supported"
    return None


def _rope(config: PreTrainedConfig) -> str | None:
    for rope_type in _rope_types(getattr(config, "rope_parameters", None)):
        if rope_type not in _ROPE_TYPES:
            return f"its rotary embedding '{rope_type}' depends on the length of the text"
    return None


def _rope_types(parameters: object) -> Iterator[str]:
    """Rope types in ``rope_parameters``, which some families nest by layer type."""
    if not isinstance(parameters, Mapping):
        return
    if "rope_type" in parameters:
        yield str(parameters["rope_type"])
    for nested in parameters.values():
        yield from _rope_types(nested)


def _kv_shape(config: PreTrainedConfig) -> str | None:
    for field in ("head_dim", "num_key_value_heads"):
        if isinstance(getattr(config, field, None), (list, tuple, dict)):
            return f"its '{field}' differs from layer to layer"
    for field in ("global_head_dim", "num_global_key_value_heads", "kv_lora_rank"):
        if getattr(config, field, None):
            return f"its K/V have no single shape ('{field}')"
    if getattr(config, "num_kv_shared_layers", 0):
        return "its layers share K/V ('num_kv_shared_layers')"
    return None


_CHECKS: tuple[Callable[[PreTrainedConfig], str | None], ...] = (
    _modality,
    _direction,
    _family,
    _head,
    _quantised,
    _layer_types,
    _rope,
    _kv_shape,
)
