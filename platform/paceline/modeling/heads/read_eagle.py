"""Reads EAGLE and EAGLE-3 heads in the layouts that their authors, speculators and vLLM use."""

import logging
from pathlib import Path
from typing import Any

import torch

from paceline.modeling.heads.draft_vocabulary import read_vocabulary, take_offsets
from paceline.modeling.heads.eagle3_head import Eagle3Head
from paceline.modeling.heads.eagle_head import EagleHead
from paceline.modeling.heads.fusion import layer_config, load_fusion
from paceline.modeling.heads.head_shape import fitting_config, whole_number
from paceline.modeling.heads.head_tensors import HeadTensors, unfilled
from paceline.modeling.heads.specs import layered_spec
from paceline.modeling.heads.target_weights import TargetWeights

logger = logging.getLogger(__name__)


def read_eagle(folder: Path, raw: dict[str, Any], target: TargetWeights) -> EagleHead:
    """The head in ``folder``: ``fc`` over [embedding; feature], and ``layers.0`` without a norm in front."""
    tensors = HeadTensors.read(folder, strip=("model.",))
    _check_one_layer(raw, tensors)
    config = fitting_config(raw, target, tensors, num_layers=1)
    spec = layered_spec(
        "eagle", "eagle", config, target=target, draft_token_ids=read_vocabulary(folder, target.vocab_size)
    )
    head = unfilled(lambda: EagleHead(spec, config, target, fc_bias="fc.bias" in tensors), target.embedding.dtype)
    tensors.fill(head, "")
    drop_copies(tensors, target, "embed_tokens.weight", "lm_head.weight")
    tensors.finish()
    return head


def read_eagle3(folder: Path, raw: dict[str, Any], target: TargetWeights) -> Eagle3Head:
    """The head in ``folder``; its layer is called ``midlayer`` or ``layers.0``."""
    tensors = HeadTensors.read(folder, strip=("model.",)).mapped(lambda name: name.replace("midlayer.", "layers.0.", 1))
    fusion = load_fusion(folder)
    shape = layer_config(raw)
    _check_one_layer(shape, tensors)
    config = fitting_config(shape, target, tensors, num_layers=1)
    draft_vocab_size = whole_number(raw, "draft_vocab_size", tensors, default=target.vocab_size)
    target_ids = take_offsets(tensors, draft_vocab_size, target.vocab_size)
    order = None if target_ids is None else target_ids.argsort()
    spec = layered_spec(
        "eagle",
        "eagle3",
        config,
        target=target,
        feature=fusion.feature,
        draft_token_ids=None if target_ids is None else target_ids.sort().values.tolist(),
    )
    before = bool(raw.get("norm_before_residual"))
    head = unfilled(lambda: Eagle3Head(spec, config, target, norm_before_residual=before), target.embedding.dtype)
    tensors.drop("fc.weight")  # the target's part of the head
    tensors.fill(head, "")
    if order is not None:
        head.lm_head.weight.data = head.lm_head.weight.data[order]
    drop_copies(tensors, target, "embed_tokens.weight")
    tensors.finish()
    return head


def drop_copies(tensors: HeadTensors, target: TargetWeights, *names: str) -> None:
    """Forget copies of the target's embedding and output head: the target's own are used.

    Some checkpoints carry them. One that differs may lower the acceptance, so that is said in the log.
    """
    for name in names:
        if name not in tensors:
            continue
        copied = tensors.take(name, target.vocab_size, target.config.hidden_size)
        ours = target.embedding if "embed" in name else target.output_rows(None)
        if not torch.equal(copied.to(ours), ours):
            logger.warning("%s: '%s' differs from the target's, which is used", tensors.folder, name)


def _check_one_layer(raw: dict[str, Any], tensors: HeadTensors) -> None:
    if raw.get("num_hidden_layers", 1) != 1:
        raise tensors.refuse(f"it has {raw['num_hidden_layers']} decoder layers; heads of one are known")
