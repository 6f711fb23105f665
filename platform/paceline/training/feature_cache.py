"""What the frozen target computed over the dialogues, on disk: computed once, read in every epoch.

A folder has ``features.bin`` (bfloat16 ``[tokens, hidden]``, hidden states after the last norm), ``choices.bin`` (int32
``[tokens]``, the token that the target finds most likely next) and ``index.jsonl`` (a line for each dialogue, in
the order of the tokens). Dialogues are appended, and only those that are not there yet are computed.
"""

import hashlib
import json
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import numpy as np
import torch
from filelock import FileLock

from paceline.errors import ConfigError
from paceline.training.batches import batches
from paceline.training.corpus import Dialogue

FORMAT = "paceline-features-1"
_FEATURE_BYTES, _CHOICE_BYTES = 2, 4

Say = Callable[[int, int], None]  # (tokens done, of how many)


class FeatureSource(Protocol):
    """The target, frozen."""

    @property
    def version(self) -> str:
        """Of its weights and its arithmetic."""

    @property
    def hidden_size(self) -> int:
        """Numbers in a feature."""

    def hidden(self, token_ids: torch.Tensor) -> torch.Tensor:
        """``[batch, tokens, hidden]`` after the last norm, for ids ``[batch, tokens]`` padded at the end."""

    def choices(self, hidden: torch.Tensor) -> torch.Tensor:
        """``[n]``: the most likely token after each of ``hidden`` ([n, hidden])."""


@dataclass(frozen=True, slots=True)
class HeadBatch:
    """Dialogues side by side, padded at the end; all over ``[batch, tokens]``."""

    token_ids: torch.Tensor  # int64
    hidden: torch.Tensor  # [batch, tokens, hidden] float32: the feature of the *next* token
    choices: torch.Tensor  # int64, what the target finds most likely next
    is_answer: torch.Tensor  # whether the next token is one of an answer

    def to(self, device: torch.device) -> "HeadBatch":
        """The same on ``device``."""
        moved = (tensor.to(device) for tensor in (self.token_ids, self.hidden, self.choices, self.is_answer))
        return HeadBatch(*moved)


class FeatureCache:
    """Features of dialogues in a folder, which several trainings may share: one of them writes at a time."""

    def __init__(self, folder: Path, source: FeatureSource) -> None:
        """Open or begin it. Raises ConfigError if the folder holds features of another target."""
        self._folder = folder
        self._source = source
        self._size = source.hidden_size
        folder.mkdir(parents=True, exist_ok=True)
        self._check_head()
        self._places: dict[str, tuple[int, int]] = {}  # dialogue -> (first token, tokens)
        self._num_tokens = 0

    def fill(self, dialogues: Sequence[Dialogue], say: Say = lambda *_: None, *, batch_tokens: int = 4096) -> float:
        """Compute what is missing; returns the seconds that it took. Interrupted, it keeps what is written."""
        with FileLock(self._folder / "lock"):
            since = time.monotonic()
            self._read_index()
            missing = {key_of(one): one for one in dialogues if key_of(one) not in self._places}
            total, done = sum(map(len, missing.values())), 0
            # Neighbours of like length waste little on padding.
            for batch in batches(sorted(missing.values(), key=len), batch_tokens):
                self._append(batch)
                done += sum(map(len, batch))
                say(done, total)
            return time.monotonic() - since

    def batch(self, dialogues: Sequence[Dialogue]) -> HeadBatch:
        """Dialogues that `fill` was called with."""
        token_ids, is_answer = padded(dialogues)
        choices = torch.zeros_like(token_ids)
        hidden = torch.zeros(*token_ids.shape, self._size)
        for row, dialogue in enumerate(dialogues):
            length = len(dialogue)
            start, _ = self._places[key_of(dialogue)]
            bits = np.fromfile(
                self._features, np.int16, length * self._size, offset=start * self._size * _FEATURE_BYTES
            )
            hidden[row, :length] = torch.from_numpy(bits).view(torch.bfloat16).view(length, self._size)
            chosen = np.fromfile(self._choices, np.int32, length, offset=start * _CHOICE_BYTES)
            choices[row, :length] = torch.from_numpy(chosen)
        return HeadBatch(token_ids, hidden, choices, is_answer)

    def _append(self, batch: Sequence[Dialogue]) -> None:
        token_ids, _ = padded(batch)
        with torch.inference_mode():
            rows = self._source.hidden(token_ids)
            hidden = torch.cat([row[: len(dialogue)] for row, dialogue in zip(rows, batch, strict=True)])
            choices = self._source.choices(hidden)
        _write(self._features, hidden.to(torch.bfloat16).cpu().view(torch.int16).numpy().tobytes())
        _write(self._choices, choices.to(torch.int32).cpu().numpy().tobytes())
        with self._lines.open("a", encoding="utf-8") as file:
            for dialogue in batch:
                key = key_of(dialogue)
                file.write(json.dumps([key, len(dialogue)]) + "\n")
                self._places[key] = (self._num_tokens, len(dialogue))
                self._num_tokens += len(dialogue)

    def _read_index(self) -> None:
        """Learn what is there, and cut off what was being written when a process ended."""
        content = self._lines.read_text("utf-8") if self._lines.exists() else ""
        whole = content[: content.rfind("\n") + 1]
        self._places, self._num_tokens = {}, 0
        for key, count in map(json.loads, whole.splitlines()):
            self._places[key] = (self._num_tokens, count)
            self._num_tokens += count
        _cut(self._lines, len(whole.encode()))
        _cut(self._features, self._num_tokens * self._size * _FEATURE_BYTES)
        _cut(self._choices, self._num_tokens * _CHOICE_BYTES)

    def _check_head(self) -> None:
        head = {"format": FORMAT, "target": self._source.version, "hidden_size": self._size}
        path = self._folder / "features.json"
        if not path.exists():
            path.write_text(json.dumps(head) + "\n", "utf-8")
        elif json.loads(path.read_text("utf-8")) != head:
            raise ConfigError(f"{self._folder} holds features of another target; name another folder.")

    @property
    def _features(self) -> Path:
        return self._folder / "features.bin"

    @property
    def _choices(self) -> Path:
        return self._folder / "choices.bin"

    @property
    def _lines(self) -> Path:
        return self._folder / "index.jsonl"


def padded(dialogues: Sequence[Dialogue]) -> tuple[torch.Tensor, torch.Tensor]:
    """(ids, whether the next token is one of an answer), both ``[batch, tokens]``, padded at the end."""
    width = max(map(len, dialogues))
    token_ids = torch.zeros(len(dialogues), width, dtype=torch.int64)
    is_answer = torch.zeros(len(dialogues), width, dtype=torch.bool)
    for row, dialogue in enumerate(dialogues):
        token_ids[row, : len(dialogue)] = torch.tensor((*dialogue.prompt_ids, *dialogue.answer_ids))
        is_answer[row, max(len(dialogue.prompt_ids) - 1, 0) : len(dialogue) - 1] = True
    return token_ids, is_answer


def key_of(dialogue: Dialogue) -> str:
    """A name for the dialogue's ids, the same in every run."""
    ids = np.array((*dialogue.prompt_ids, *dialogue.answer_ids), dtype="<i8")
    return hashlib.sha256(ids.tobytes()).hexdigest()[:32]


def _write(path: Path, content: bytes) -> None:
    with path.open("ab") as file:
        file.write(content)


def _cut(path: Path, size: int) -> None:
    found = path.stat().st_size if path.exists() else 0
    if found < size:
        raise ConfigError(f"{path} is shorter than its index says; remove the folder and begin again.")
    if found > size:
        with path.open("ab") as file:
            file.truncate(size)
