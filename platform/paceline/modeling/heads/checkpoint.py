"""Draft heads in folders: a ``config.json`` and safetensors, in layouts that other engines know."""

import dataclasses
import hashlib
from pathlib import Path
from typing import Any

from paceline.errors import ModelRefusedError
from paceline.modeling.heads.draft_head import DraftHead
from paceline.modeling.heads.head_tensors import safetensors_files
from paceline.modeling.heads.layout import NUM_MODULES, is_eagle3, method_of, read_head_config
from paceline.modeling.heads.medusa_head import MedusaHead
from paceline.modeling.heads.read_eagle import read_eagle, read_eagle3
from paceline.modeling.heads.read_medusa import read_medusa
from paceline.modeling.heads.read_mtp import read_mtp
from paceline.modeling.heads.target_weights import TargetWeights
from paceline.modeling.weights_version import weights_version

Head = DraftHead | MedusaHead


def load_head(folder: Path, target: TargetWeights) -> Head:
    """The head in ``folder`` for ``target``, in the target's type and on its device, without gradients.

    A target's own folder gives its native MTP modules. Raises ModelUnavailableError where there is no readable head,
    and ModelRefusedError, with a sentence, for one that is malformed or for another model.
    """
    raw = read_head_config(folder)
    safetensors_files(folder)  # a pickle is the first thing to refuse
    nested = raw.get("model") if raw.get("model_type") == "eagle" else None  # how vLLM wraps EAGLE's own config
    head = _read(folder, nested if isinstance(nested, dict) else raw, target)
    head = head.to(target.embedding.device).requires_grad_(requires_grad=False)
    head.train(mode=False)
    head.spec = dataclasses.replace(head.spec, weights_version=_version(folder, head))
    return head


def has_native_mtp(folder: Path) -> bool:
    """Whether the model in ``folder`` says that it brings MTP modules of its own."""
    return bool(read_head_config(folder).get(NUM_MODULES))


def _read(folder: Path, raw: dict[str, Any], target: TargetWeights) -> Head:
    speculators = raw.get("speculators_model_type")
    if speculators not in (None, "eagle3"):
        raise ModelRefusedError(f"The head in {folder} is refused: its kind '{speculators}' is not known here.")
    method = method_of(raw)
    if method == "medusa":
        return read_medusa(folder, raw, target)
    if method == "mtp":
        return read_mtp(folder, raw, target)
    if is_eagle3(raw):
        return read_eagle3(folder, raw, target)
    if raw.get("num_hidden_layers", 1) > 1 and "Eagle" not in " ".join(raw.get("architectures") or ()):
        raise ModelRefusedError(
            f"The folder {folder} holds a whole model, not a draft head, and no MTP modules ('{NUM_MODULES}')."
        )
    return read_eagle(folder, raw, target)


def _version(folder: Path, head: Head) -> str:
    """Of the weights and of the draft vocabulary, which may lie beside them."""
    version = f"{weights_version(folder)} {head.spec.draft_token_ids}"
    return hashlib.sha256(version.encode()).hexdigest()[:16]
