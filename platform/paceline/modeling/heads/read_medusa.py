"""Reads Medusa heads in vLLM's layout and in that of the authors."""

import re
from pathlib import Path
from typing import Any

import torch

from paceline.modeling.heads.draft_vocabulary import read_vocabulary, take_token_map
from paceline.modeling.heads.head_shape import whole_number
from paceline.modeling.heads.head_tensors import HeadTensors, unfilled
from paceline.modeling.heads.medusa_head import MedusaHead
from paceline.modeling.heads.specs import medusa_spec
from paceline.modeling.heads.target_weights import TargetWeights

_AUTHORS_BLOCK = re.compile(r"(\d+)\.(\d+)\.linear\.(weight|bias)")
_AUTHORS_OUTPUT = re.compile(r"(\d+)\.\d+\.weight")


def read_medusa(folder: Path, raw: dict[str, Any], target: TargetWeights) -> MedusaHead:
    """The heads in ``folder``; their output head is their own, or, where they have none, the target's."""
    tensors = HeadTensors.read(folder, strip=("medusa_heads.", "medusa_head.")).mapped(_vllm_name)
    for field, ours in (("hidden_size", target.config.hidden_size), ("vocab_size", target.vocab_size)):
        if raw.get(field, ours) != ours:
            raise tensors.refuse(f"its '{field}' is {raw[field]}, but the target's is {ours}: it is for another model")
    if raw.get("logit_scale", 1.0) != 1.0:
        raise tensors.refuse("its config asks for 'logit_scale', which is not computed here")
    num_heads = whole_number(raw, "num_heads" if "num_heads" in raw else "medusa_num_heads", tensors)
    num_layers = whole_number(
        raw, "num_hidden_layers" if "num_hidden_layers" in raw else "medusa_num_layers", tensors, default=1
    )
    size = raw.get("truncated_vocab_size") or target.vocab_size
    mapped = take_token_map(tensors, size, target.vocab_size)
    if mapped is None and size != target.vocab_size:
        raise tensors.refuse(f"its draft vocabulary has {size} tokens, but tensor 'token_map' is missing")
    ids = read_vocabulary(folder, target.vocab_size) if mapped is None else tuple(mapped.sort().values.tolist())
    shared, own = "lm_head.weight" in tensors, "lm_heads.0.weight" in tensors
    outputs = 1 if shared or (raw.get("original_lm_head") and own) else num_heads if own else 0
    bias = "blocks.0.layers.0.bias" in tensors
    head = unfilled(
        lambda: MedusaHead(
            medusa_spec(target, num_heads, ids), target, num_layers=num_layers, bias=bias, num_outputs=outputs
        ),
        target.embedding.dtype,
    )
    tensors.fill(head.blocks, "blocks.")
    for index, output in enumerate(head.lm_heads):
        name = "lm_head.weight" if shared else f"lm_heads.{index}.weight"
        rows = tensors.take(name, tensors.shape(name)[0], target.config.hidden_size)
        if mapped is not None:  # rows of the whole vocabulary, or of the draft's in the order of its map
            rows = rows[mapped.sort().values if len(rows) == target.vocab_size != size else mapped.argsort()]
        if len(rows) != head.spec.draft_vocab_size:
            raise tensors.refuse(f"tensor '{name}' has {len(rows)} rows for {head.spec.draft_vocab_size} draft tokens")
        output.weight = torch.nn.Parameter(rows.to(target.embedding.dtype).clone(), requires_grad=False)
    if raw.get("original_lm_head"):
        for index in range(num_heads):
            tensors.drop(f"lm_heads.{index}.weight")
    tensors.finish()
    return head


def _vllm_name(name: str) -> str:
    """Name in vLLM's layout of a tensor in the authors'."""
    if match := _AUTHORS_BLOCK.fullmatch(name):
        return f"blocks.{match[1]}.layers.{match[2]}.{match[3]}"
    if match := _AUTHORS_OUTPUT.fullmatch(name):
        return f"lm_heads.{match[1]}.weight"
    return name
