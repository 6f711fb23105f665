"""How much text one token id can stand for, so that a prompt which cannot fit is seen by its length."""

import json
from collections.abc import Iterator, Mapping
from typing import Any

from tokenizers.pre_tokenizers import ByteLevel
from transformers import PreTrainedTokenizerBase

_NFC_SHRINKS_TO = 3  # composed text has at least a third of the bytes: three Hangul letters become one syllable
_HARMLESS_NORMALIZERS = frozenset({"Prepend", "Replace", "NFC"})
_HARMLESS_SPLITTERS = frozenset({"ByteLevel", "Digits", "Metaspace", "Split"})


def longest_token_bytes(tokenizer: PreTrainedTokenizerBase) -> int | None:
    """Most UTF-8 bytes of a text that one id can stand for; an upper bound.

    None where there is no bound that is sure: an unknown word may be one id, and a normaliser may drop text.
    """
    backend = getattr(tokenizer, "backend_tokenizer", None)
    if backend is None:
        return None
    parts = json.loads(backend.to_str())
    model, added = parts["model"], parts["added_tokens"]
    normalizers = list(_steps(parts["normalizer"], "normalizers"))
    splitters = list(_steps(parts["pre_tokenizer"], "pretokenizers"))
    byte_level = any(step["type"] == "ByteLevel" for step in splitters)
    if not (
        model["type"] == "BPE"
        and _knows_every_byte(model, byte_level=byte_level)
        and all(_keeps_length(step) for step in normalizers)
        and all(step["type"] in _HARMLESS_SPLITTERS and step.get("behavior") != "Removed" for step in splitters)
        and not any(token["lstrip"] or token["rstrip"] for token in added)
    ):
        return None
    longest = max((len(token) if byte_level else len(token.encode()) for token in model["vocab"]), default=1)
    longest = max(longest, *(len(token["content"].encode()) for token in added), 1)
    composes = any(step["type"] == "NFC" for step in normalizers)
    return longest * (_NFC_SHRINKS_TO if composes else 1)


def _knows_every_byte(model: Mapping[str, Any], *, byte_level: bool) -> bool:
    if byte_level:
        return all(character in model["vocab"] for character in ByteLevel.alphabet())
    return bool(model.get("byte_fallback")) and all(f"<0x{value:02X}>" in model["vocab"] for value in range(256))


def _steps(part: Mapping[str, Any] | None, inner: str) -> Iterator[Mapping[str, Any]]:
    """The steps of a part that may be absent, one, or a sequence."""
    if part is None:
        return
    if part["type"] != "Sequence":
        yield part
        return
    for step in part[inner]:
        yield from _steps(step, inner)


def _keeps_length(step: Mapping[str, Any]) -> bool:
    if step["type"] != "Replace":
        return step["type"] in _HARMLESS_NORMALIZERS
    pattern = step["pattern"].get("String")  # a regular expression may match any amount
    return pattern is not None and len(step["content"].encode()) >= len(pattern.encode())
