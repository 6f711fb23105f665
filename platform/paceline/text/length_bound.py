"""How much text one token id can stand for, so that a prompt which cannot fit is seen by its length."""

import json
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from transformers import PreTrainedTokenizerBase

_NFC_SHRINKS_TO = 3  # composed text has at least a third of the bytes: three Hangul letters become one syllable
_HARMLESS_NORMALIZERS = frozenset({"Prepend", "Replace", "NFC"})
_HARMLESS_SPLITTERS = frozenset({"ByteLevel", "Digits", "Metaspace", "Split"})


class LengthBound(NamedTuple):
    """What the length of a text says about its number of ids."""

    longest_token_bytes: int  # most UTF-8 bytes that one id can stand for; an upper bound
    dropped_bytes: bytes  # bytes that the vocabulary lacks, of which no id comes

    def least_tokens(self, text: str) -> int:
        """A number of ids that the text cannot stay below."""
        num_bytes = len(text.encode("utf-8", "surrogatepass").translate(None, self.dropped_bytes))
        return -(-num_bytes // self.longest_token_bytes)


def length_bound(tokenizer: PreTrainedTokenizerBase) -> LengthBound | None:
    """The bound of a tokenizer.

    None where none is sure: an unknown word may be one id, and a normaliser may drop text.
    """
    backend = getattr(tokenizer, "backend_tokenizer", None)
    if backend is None:
        return None
    parts = json.loads(backend.to_str())
    model, added = parts["model"], parts["added_tokens"]
    normalizers = list(_steps(parts["normalizer"], "normalizers"))
    splitters = list(_steps(parts["pre_tokenizer"], "pretokenizers"))
    byte_level = any(step["type"] == "ByteLevel" for step in splitters)
    composes = any(step["type"] == "NFC" for step in normalizers)
    if not (
        model["type"] == "BPE"
        and (byte_level or _falls_back_to_bytes(model))
        and all(_keeps_length(step) for step in normalizers)
        and all(step["type"] in _HARMLESS_SPLITTERS and step.get("behavior") != "Removed" for step in splitters)
        and not any(token["lstrip"] or token["rstrip"] for token in added)
    ):
        return None
    dropped = _bytes_unknown_to(model["vocab"]) if byte_level else b""
    if dropped and (composes or model.get("unk_token")):
        return None  # composition may make such bytes, and a run of them may become one unknown token
    longest = max((len(token) if byte_level else len(token.encode()) for token in model["vocab"]), default=1)
    longest = max(longest, *(len(token["content"].encode()) for token in added), 1)
    return LengthBound(longest * (_NFC_SHRINKS_TO if composes else 1), dropped)


def _falls_back_to_bytes(model: Mapping[str, Any]) -> bool:
    return bool(model.get("byte_fallback")) and all(f"<0x{value:02X}>" in model["vocab"] for value in range(256))


def _bytes_unknown_to(vocab: Mapping[str, int]) -> bytes:
    """Byte-level tokenizers write a printable Latin-1 byte as itself and the others, in order, from U+0100 on."""
    printable = {*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)}
    others = [value for value in range(256) if value not in printable]
    letters = {value: chr(value) for value in printable} | {value: chr(256 + i) for i, value in enumerate(others)}
    return bytes(value for value, letter in sorted(letters.items()) if letter not in vocab)


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
