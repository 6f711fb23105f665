"""Reads MTP modules named as DeepSeek-V3 names them, beside a target's layers or in a folder of their own."""

from pathlib import Path
from typing import Any

from paceline.modeling.heads.draft_vocabulary import read_vocabulary
from paceline.modeling.heads.head_shape import fitting_config, whole_number
from paceline.modeling.heads.head_tensors import HeadTensors, unfilled
from paceline.modeling.heads.layout import NUM_MODULES
from paceline.modeling.heads.mtp_head import MtpHead
from paceline.modeling.heads.read_eagle import drop_copies
from paceline.modeling.heads.specs import layered_spec
from paceline.modeling.heads.target_weights import TargetWeights

PARALLEL = "mtp_parallel"  # ours: independent heads on the trunk
# Our name -> theirs, for what is not part of the decoder layer.
OUTER_NAMES = {"enorm": "enorm", "hnorm": "hnorm", "eh_proj": "eh_proj", "norm": "shared_head.norm"}


def read_mtp(folder: Path, raw: dict[str, Any], target: TargetWeights) -> MtpHead:
    """The modules ``model.layers.{N}``, ``model.layers.{N + 1}``, ... of ``folder``, N being `num_hidden_layers`."""
    tensors = HeadTensors.read(folder, keep=lambda name: layer_number(name) >= raw.get("num_hidden_layers", 0))
    count = whole_number(raw, NUM_MODULES, tensors)
    first = whole_number(raw, "num_hidden_layers", tensors)
    config = fitting_config(raw, target, tensors, num_layers=count)
    spec = layered_spec(
        "mtp",
        "parallel" if raw.get(PARALLEL) else "sequential",
        config,
        target=target,
        num_modules=count,
        draft_token_ids=read_vocabulary(folder, target.vocab_size),
    )
    head = unfilled(lambda: MtpHead(spec, config, target), target.embedding.dtype)
    for index in range(count):
        module, prefix = head.module_at(index + 1), f"model.layers.{first + index}."
        tensors.fill(module.layer, prefix)
        for ours, theirs in OUTER_NAMES.items():
            if hasattr(module, ours):
                tensors.fill(getattr(module, ours), f"{prefix}{theirs}.")
        drop_copies(tensors, target, f"{prefix}embed_tokens.weight", f"{prefix}shared_head.head.weight")
    tensors.finish()
    return head


def layer_number(name: str) -> int:
    """Number of the layer that a tensor belongs to; -1 for what is in none."""
    parts = name.split(".")
    return int(parts[2]) if parts[:2] == ["model", "layers"] and len(parts) > 2 and parts[2].isdecimal() else -1
