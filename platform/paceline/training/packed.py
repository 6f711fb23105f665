"""Dialogues in little space: ids as uint16, compressed, so that a repository can carry what a drafter learnt from.

The content of a file, before compression by xz: one line of JSON (the format, the vocabulary's fingerprint, the names
of the sources, the number of dialogues and of ids), then for all dialogues the lengths of the prompts (uint32), of
the answers (uint32), the temperatures (float64) and the places of the sources (uint16), then all ids (uint16), each
dialogue's prompt before its answer. Everything is little-endian.
"""

import json
import lzma
from collections.abc import Sequence
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from paceline.core.model_identity import VocabularyIdentity
from paceline.errors import ConfigError
from paceline.training.corpus import Dialogue

FORMAT = "paceline-dialogues-1"
MOST_BYTES = 10_000_000
_MOST_IDS = 1 << 16
# The low bits of the place tell the two bytes of an id apart.
_FILTERS = [{"id": lzma.FILTER_LZMA2, "preset": 9 | lzma.PRESET_EXTREME, "lc": 3, "lp": 1, "pb": 1}]


def pack(dialogues: Sequence[Dialogue], vocabulary: VocabularyIdentity, *, most_bytes: int = MOST_BYTES) -> bytes:
    """The content of a packed file: the same dialogues give the same bytes.

    Raises ConfigError for a vocabulary of more than 65,536 ids, and for more than ``most_bytes``.
    """
    if vocabulary.size > _MOST_IDS:
        raise ConfigError(f"Packed files hold ids below {_MOST_IDS}; the vocabulary has {vocabulary.size}.")
    sources = sorted({dialogue.source for dialogue in dialogues})
    head = {
        "format": FORMAT,
        "vocabulary": vocabulary.fingerprint,
        "sources": sources,
        "dialogues": len(dialogues),
        "ids": sum(map(len, dialogues)),
    }
    columns = (
        np.array([len(dialogue.prompt_ids) for dialogue in dialogues], dtype="<u4"),
        np.array([len(dialogue.answer_ids) for dialogue in dialogues], dtype="<u4"),
        np.array([dialogue.temperature for dialogue in dialogues], dtype="<f8"),
        np.array([sources.index(dialogue.source) for dialogue in dialogues], dtype="<u2"),
        np.fromiter(chain.from_iterable((*one.prompt_ids, *one.answer_ids) for one in dialogues), dtype="<u2"),
    )
    content = json.dumps(head, sort_keys=True).encode() + b"\n" + b"".join(column.tobytes() for column in columns)
    packed = lzma.compress(content, format=lzma.FORMAT_XZ, filters=_FILTERS)
    if len(packed) > most_bytes:
        raise ConfigError(
            f"These dialogues take {len(packed)} bytes packed; at most {most_bytes} are allowed. Give fewer files, "
            "or leave looping answers out with --drop-loops."
        )
    return packed


def unpack(path: Path, vocabulary: VocabularyIdentity | None = None) -> list[Dialogue]:
    """The dialogues of a packed file. Raises ConfigError, also where they were written with another vocabulary."""
    head, body = _read(path)
    if vocabulary is not None and head["vocabulary"] != vocabulary.fingerprint:
        raise ConfigError(f"{path} holds ids of another vocabulary: it cannot train a drafter of this target.")
    try:
        return _dialogues(head, body)
    except (IndexError, KeyError, TypeError, ValueError) as error:
        raise ConfigError(f"{path} is damaged: {error}.") from error


def _dialogues(head: dict[str, Any], body: bytes) -> list[Dialogue]:
    count, num_ids, place = int(head["dialogues"]), int(head["ids"]), 0

    def take(kind: str, length: int) -> npt.NDArray[Any]:
        nonlocal place
        column = np.frombuffer(body, dtype=kind, count=length, offset=place)
        place += column.nbytes
        return column

    prompts, answers, temperatures, sources = (take(kind, count) for kind in ("<u4", "<u4", "<f8", "<u2"))
    ids = take("<u2", num_ids).tolist()
    if place != len(body) or int(prompts.sum()) + int(answers.sum()) != num_ids:
        raise ValueError("its lengths do not add up")
    dialogues, start = [], 0
    for prompt, answer, temperature, source in zip(prompts, answers, temperatures, sources, strict=True):
        middle = start + int(prompt)
        stop = middle + int(answer)
        answer_ids = tuple(ids[middle:stop])
        dialogues.append(
            Dialogue(tuple(ids[start:middle]), answer_ids, float(temperature), head["sources"][int(source)])
        )
        start = stop
    return dialogues


def _read(path: Path) -> tuple[dict[str, Any], bytes]:
    try:
        content = lzma.decompress(path.read_bytes(), format=lzma.FORMAT_XZ)
    except (OSError, lzma.LZMAError, EOFError) as error:
        raise ConfigError(f"{path} cannot be read: {error}.") from error
    first, _, body = content.partition(b"\n")
    try:
        head = json.loads(first)
        known = head["format"] == FORMAT
    except (ValueError, TypeError, KeyError) as error:
        raise ConfigError(f"{path} is no file of `paceline train pack`.") from error
    if not known:
        raise ConfigError(f"{path} has format '{head['format']}'; this version reads '{FORMAT}'.")
    return head, body
