"""Reduced draft vocabularies (FR-Spec, Zhao et al. 2025; EAGLE-3's ``d2t``): heads that propose common tokens only."""

import json
from collections.abc import Sequence
from pathlib import Path

import torch

from paceline.errors import ModelRefusedError
from paceline.modeling.heads.head_tensors import HeadTensors

# Layouts that have no word for a reduced vocabulary keep it beside; other engines then draft with the whole one.
FILE = "draft_vocabulary.json"
_KEY = "token_ids"


def read_vocabulary(folder: Path, vocab_size: int) -> tuple[int, ...] | None:
    """Token ids that the head in ``folder`` can propose, ascending; None where it has no such file.

    Raises ModelRefusedError for a file that is no list of different ids below ``vocab_size``.
    """
    file = folder / FILE
    if not file.exists():
        return None
    try:
        token_ids = json.loads(file.read_text("utf-8"))[_KEY]
        valid = all(type(token_id) is int and 0 <= token_id < vocab_size for token_id in token_ids)
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ModelRefusedError(f"{file} is refused: it must be an object with a list '{_KEY}' ({error!r}).") from error
    if not valid or not token_ids or list(token_ids) != sorted(set(token_ids)):
        raise ModelRefusedError(
            f"{file} is refused: '{_KEY}' must be different ids from 0 to {vocab_size - 1}, in ascending order."
        )
    return tuple(token_ids)


def write_vocabulary(folder: Path, token_ids: Sequence[int] | None) -> None:
    """Write what `read_vocabulary` reads; nothing for the whole vocabulary."""
    if token_ids is not None:
        (folder / FILE).write_text(json.dumps({_KEY: list(token_ids)}) + "\n", "utf-8")


def take_offsets(tensors: HeadTensors, draft_vocab_size: int, vocab_size: int) -> torch.Tensor | None:
    """Target id of each draft id, from ``d2t``, as ``[draft vocab]`` int64; None where both are the same.

    Raises ModelRefusedError for ids outside the vocabulary, for ids twice, and where ``t2d`` says something else.
    """
    if "d2t" not in tensors:
        tensors.drop("t2d")
        if draft_vocab_size != vocab_size:
            raise tensors.refuse(f"its draft vocabulary has {draft_vocab_size} tokens, but tensor 'd2t' is missing")
        return None
    target_ids = tensors.take_ids("d2t", draft_vocab_size) + torch.arange(draft_vocab_size)
    outside = (target_ids < 0) | (target_ids >= vocab_size)
    if outside.any():
        draft_id = int(outside.nonzero()[0])
        raise tensors.refuse(
            f"'d2t' makes draft token {draft_id} the target's token {int(target_ids[draft_id])}, which is not among "
            f"its {vocab_size}"
        )
    if len(set(target_ids.tolist())) < draft_vocab_size:
        raise tensors.refuse("'d2t' gives two draft tokens the same token of the target")
    if "t2d" in tensors:
        known = torch.zeros(vocab_size, dtype=torch.bool)
        known[target_ids] = True
        if not torch.equal(tensors.take_any("t2d", vocab_size).bool(), known):
            raise tensors.refuse("'t2d' and 'd2t' name different tokens")
    return target_ids


def take_token_map(tensors: HeadTensors, draft_vocab_size: int, vocab_size: int) -> torch.Tensor | None:
    """Target id of each draft id, from Medusa's ``token_map``; like `take_offsets`."""
    if "token_map" not in tensors:
        return None
    target_ids = tensors.take_ids("token_map", draft_vocab_size)
    if (
        len(set(target_ids.tolist())) < draft_vocab_size
        or not 0 <= int(target_ids.min()) <= int(target_ids.max()) < vocab_size
    ):
        raise tensors.refuse(f"'token_map' must hold different ids from 0 to {vocab_size - 1}")
    return target_ids
