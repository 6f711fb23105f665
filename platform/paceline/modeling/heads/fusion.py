"""How EAGLE-3 makes one feature of several layers of the target (Li et al. 2025)."""

import hashlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from paceline.core.model_identity import FeatureFacts
from paceline.errors import ModelRefusedError
from paceline.modeling.heads.head_tensors import HeadTensors
from paceline.modeling.heads.layout import read_head_config

_LAYERS = "eagle_aux_hidden_state_layer_ids"
# Switches of newer checkpoints that change the arithmetic of the fusion or of the head.
_UNKNOWN_SWITCHES = ("norm_before_fc", "fc_norm", "norm_output")


@dataclass(frozen=True, slots=True)
class Fusion:
    """``feature = weight @ [h_low; h_middle; h_high]``, each the *input* of a layer of the target."""

    weight: torch.Tensor  # [size, number of layers * hidden size of the target], as stored
    layer_ids: tuple[int, ...] | None  # ascending; None: where the checkpoint does not say
    fingerprint: str

    @property
    def feature(self) -> FeatureFacts:
        """What a target that computes this keeps for each token."""
        return FeatureFacts(f"fused:{self.fingerprint}", self.weight.shape[0])

    def layers(self, num_layers: int) -> tuple[int, ...]:
        """Layers of a target of ``num_layers`` whose inputs are fused: input i is the output of layer i - 1.

        Raises ModelRefusedError where the target has too few.
        """
        layers = self.layer_ids or (2, num_layers // 2, num_layers - 3)
        if not 0 <= min(layers) <= max(layers) <= num_layers or len(set(layers)) < len(layers):
            raise ModelRefusedError(
                f"An EAGLE-3 head fuses the inputs of the layers {', '.join(map(str, layers))}, which a target of "
                f"{num_layers} layers does not have."
            )
        return layers


def load_fusion(folder: Path) -> Fusion:
    """The fusion of the EAGLE-3 head in ``folder``. Raises ModelRefusedError or ModelUnavailableError."""
    config = read_head_config(folder)
    tensors = HeadTensors.read(
        folder, keep=lambda name: name.removeprefix("model.").startswith("fc."), strip=("model.",)
    )
    for switch in _UNKNOWN_SWITCHES:
        if config.get(switch):
            raise tensors.refuse(f"its config asks for '{switch}', which is not computed here")
    layer_ids = _layer_ids(config, tensors)
    hidden_size = layer_config(config).get("hidden_size")
    if not isinstance(hidden_size, int):
        raise tensors.refuse("its config lacks 'hidden_size'")
    target_size = config.get("target_hidden_size") or hidden_size
    weight = tensors.take("fc.weight", hidden_size, len(layer_ids or "lmh") * target_size)
    tensors.finish()
    digest = hashlib.sha256(repr(layer_ids).encode())
    digest.update(weight.float().contiguous().numpy().tobytes())
    return Fusion(weight, layer_ids, digest.hexdigest()[:16])


def layer_config(config: dict[str, Any]) -> dict[str, Any]:
    """Configuration of the head's decoder layer, wherever the layout keeps it."""
    nested: dict[str, Any] = config.get("transformer_layer_config") or config
    return nested


def _layer_ids(config: dict[str, Any], tensors: HeadTensors) -> tuple[int, ...] | None:
    layer_ids = config.get(_LAYERS) or (config.get("eagle_config") or {}).get(_LAYERS)
    if layer_ids is None:
        return None
    if not isinstance(layer_ids, list) or not layer_ids or not all(type(layer) is int for layer in layer_ids):
        raise tensors.refuse(f"'{_LAYERS}' must be a list of layer numbers")
    return tuple(sorted(layer_ids))
