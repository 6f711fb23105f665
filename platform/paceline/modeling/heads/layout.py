"""What the ``config.json`` of a draft head says about it, read without torch."""

import json
from pathlib import Path
from typing import Any

from paceline.errors import ModelUnavailableError
from paceline.modeling.heads.head_spec import Method

NUM_MODULES = "num_nextn_predict_layers"  # of a target with MTP modules, or of modules on their own
_NESTED = ("model", "transformer_layer_config")  # where vLLM and speculators keep the shape of the layer


def read_head_config(folder: Path) -> dict[str, Any]:
    """``config.json`` of ``folder``. Raises ModelUnavailableError where there is none that can be read."""
    try:
        config = json.loads((folder / "config.json").read_text("utf-8"))
    except (OSError, ValueError) as error:
        raise ModelUnavailableError(f"Cannot read {folder / 'config.json'} ({error}).") from error
    if not isinstance(config, dict):
        raise ModelUnavailableError(f"{folder / 'config.json'} is not an object.")
    return config


def method_of(config: dict[str, Any]) -> Method:
    """Which method's head has this ``config.json``; EAGLE's own layout has no mark of its own."""
    if config.get("model_type") == "medusa" or "medusa_num_heads" in config:
        return "medusa"
    return "mtp" if config.get(NUM_MODULES) else "eagle"


def is_eagle3(config: dict[str, Any]) -> bool:
    """Whether a head with this ``config.json`` reads several layers of its target fused into one feature."""
    names = " ".join(config.get("architectures") or ())
    return config.get("speculators_model_type") == "eagle3" or "Eagle3" in names or "draft_vocab_size" in config


def shape_of(config: dict[str, Any]) -> dict[str, Any]:
    """The part of ``config`` that says how large the layer is."""
    return next((config[key] for key in _NESTED if isinstance(config.get(key), dict)), config)
