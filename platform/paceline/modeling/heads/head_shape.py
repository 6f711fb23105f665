"""Checks that a head's configuration fits its target, and makes its decoder layers' configuration."""

from typing import Any

from transformers import AutoConfig, PreTrainedConfig

from paceline.errors import ModelRefusedError
from paceline.modeling.families import check_config
from paceline.modeling.heads.head_layers import head_config
from paceline.modeling.heads.head_tensors import HeadTensors
from paceline.modeling.heads.target_weights import HEAD_FAMILIES, TargetWeights


def fitting_config(
    raw: dict[str, Any], target: TargetWeights, tensors: HeadTensors, *, num_layers: int
) -> PreTrainedConfig:
    """Configuration of the ``num_layers`` decoder layers that ``raw`` describes. Raises ModelRefusedError.

    Rotary angles cover the target's context, whatever ``raw`` says: they are a formula, not weights.
    """
    family = raw.get("model_type", target.config.model_type)
    if family not in HEAD_FAMILIES:
        raise tensors.refuse(f"its layers are of the family '{family}'; known are {', '.join(HEAD_FAMILIES)}")
    for field, ours in (("hidden_size", target.config.hidden_size), ("vocab_size", target.vocab_size)):
        if raw.get(field) != ours:
            raise tensors.refuse(
                f"its '{field}' is {raw.get(field)}, but the target's is {ours}: it is for another model"
            )
    if raw.get("logit_scale", 1.0) != 1.0:
        raise tensors.refuse("its config asks for 'logit_scale', which is not computed here")
    settings = {key: value for key, value in raw.items() if key not in ("model_type", "architectures", "layer_types")}
    try:
        config = AutoConfig.for_model(family, **{**settings, "num_hidden_layers": num_layers})
        check_config(config)
    except ModelRefusedError as error:
        raise tensors.refuse(str(error).removeprefix("The model is refused: ").rstrip(".")) from error
    except (TypeError, ValueError, KeyError) as error:
        raise tensors.refuse(f"its config cannot be read ({error})") from error
    config.max_position_embeddings = max(config.max_position_embeddings, target.config.max_position_embeddings)
    return head_config(config, num_layers)


def whole_number(raw: dict[str, Any], field: str, tensors: HeadTensors, *, default: int | None = None) -> int:
    """``raw[field]``, at least 1. Raises ModelRefusedError."""
    value = raw.get(field, default)
    if type(value) is not int or value < 1:
        raise tensors.refuse(f"its '{field}' is {value!r}, not a number from 1 on")
    return value


def kv_shape(config: PreTrainedConfig) -> tuple[int, int]:
    """Heads and numbers per head of the layers' K and V."""
    num_heads = config.num_attention_heads
    head_dim = getattr(config, "head_dim", None) or config.hidden_size // num_heads
    return getattr(config, "num_key_value_heads", None) or num_heads, head_dim
