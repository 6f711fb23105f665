"""Dialogues to train on, from any of the three forms that they are kept in: text, generated answers, packed."""

import json
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Self

from paceline.bench.loops import is_looping
from paceline.errors import ConfigError
from paceline.text.chat import ChatMessage
from paceline.text.tokenizer import TextTokenizer

PACKED_SUFFIX = ".xz"


@dataclass(frozen=True, slots=True)
class Dialogue:
    """One question and what the target answered, as ids of the target's tokenizer."""

    prompt_ids: tuple[int, ...]  # with the chat template, up to where the answer begins
    answer_ids: tuple[int, ...]  # with the end token where the target ended by itself
    temperature: float  # that the answer was drawn at
    source: str  # name of the file that it comes from

    def __len__(self) -> int:
        """Tokens of both parts."""
        return len(self.prompt_ids) + len(self.answer_ids)


Make = Callable[[dict[str, Any]], Dialogue]


def read_corpus(
    paths: Sequence[Path], tokenizer: TextTokenizer, *, drop_loops: bool = False, source: str | None = None
) -> list[Dialogue]:
    """All dialogues of some files, in the order of the files and their lines, each kind told by its content.

    - JSON lines with ``user``, ``assistant``, ``temperature`` and ``finish``: text, through the chat template.
      An answer whose ``finish`` is ``stop`` ends with the model's end token.
    - JSON lines as ``paceline train generate`` writes them. A last line that is still being written is left out.
    - ``*.xz`` as ``paceline train pack`` writes them.

    A dialogue without an answer is left out. ``drop_loops`` leaves out answers that repeat themselves; ``source``
    keeps only the dialogues of the file of that name. Raises ConfigError that names the file or the line.
    """
    dialogues = [dialogue for path in paths for dialogue in _read_file(path, tokenizer)]
    dialogues = [dialogue for dialogue in dialogues if dialogue.answer_ids and source in (None, dialogue.source)]
    if drop_loops:
        dialogues = [dialogue for dialogue in dialogues if not loops(dialogue, tokenizer)]
    if not dialogues:
        named = ", ".join(str(path) for path in paths) or "No file"
        raise ConfigError(f"{named}: there is no dialogue to train on.")
    return dialogues


def loops(dialogue: Dialogue, tokenizer: TextTokenizer) -> bool:
    """Whether the answer repeats itself."""
    return is_looping(tokenizer.decode(dialogue.answer_ids))


def held_out(dialogues: Sequence[Dialogue], *, every: int = 50) -> tuple[list[Dialogue], list[Dialogue]]:
    """(to train on, to validate on): every ``every``-th question, with all answers to it, is kept for validation.

    Which questions these are depends on the questions alone, so that training that goes on with more data keeps
    them apart too.
    """
    sides: tuple[list[Dialogue], list[Dialogue]] = ([], [])
    for dialogue in dialogues:
        sides[_mix(dialogue.prompt_ids) % every == 0].append(dialogue)
    return sides


def first_tokens(dialogues: Sequence[Dialogue], most_tokens: int) -> list[Dialogue]:
    """A part of the dialogues with about ``most_tokens`` tokens of answers; a smaller part is always in a larger one.

    Which ones these are depends on the questions alone, so that curves over the data compare like with like.
    """
    taken, total = [], 0
    for dialogue in sorted(dialogues, key=lambda one: _mix(one.prompt_ids)):
        if total >= most_tokens:
            break
        taken.append(dialogue)
        total += len(dialogue.answer_ids)
    return taken


class UserTurn:
    """Finds the user's words in a prompt of one question."""

    def __init__(self, tokenizer: TextTokenizer) -> None:
        """Learn what the chat template writes around them. Raises ConfigError if it changes them."""
        marker = "\N{SNOWMAN}marker\N{SNOWMAN}"
        before, found, after = tokenizer.render([ChatMessage("user", marker)]).partition(marker)
        if not found:
            raise ConfigError("The chat template changes the user's words, so they cannot be found in a prompt.")
        self._tokenizer = tokenizer
        self._before = before
        self._after = after

    def of(self, dialogue: Dialogue) -> str:
        """The user's words; all text of the prompt where the template is not that of the tokenizer."""
        text = self._tokenizer.decode(dialogue.prompt_ids, skip_special=False)
        return text.removeprefix(self._before).removesuffix(self._after)


@dataclass(frozen=True, slots=True)
class CorpusSize:
    """How much there is."""

    dialogues: int
    prompt_tokens: int
    answer_tokens: int
    sources: dict[str, int]  # name -> dialogues

    @classmethod
    def of(cls, dialogues: Sequence[Dialogue]) -> Self:
        """Count."""
        return cls(
            dialogues=len(dialogues),
            prompt_tokens=sum(len(dialogue.prompt_ids) for dialogue in dialogues),
            answer_tokens=sum(len(dialogue.answer_ids) for dialogue in dialogues),
            sources=dict(sorted(Counter(dialogue.source for dialogue in dialogues).items())),
        )


def _read_file(path: Path, tokenizer: TextTokenizer) -> Iterator[Dialogue]:
    if path.suffix == PACKED_SUFFIX:
        from paceline.training.packed import unpack  # noqa: PLC0415  # it packs what is defined here

        yield from unpack(path, tokenizer.vocabulary)
        return
    for number, body in _objects(path):
        make: Make = _generated if "prompt_ids" in body else partial(_from_text, tokenizer)
        try:
            dialogue = make(body | {"source": path.name})
        except (KeyError, TypeError, ValueError) as error:
            what = f"it lacks {error}" if isinstance(error, KeyError) else str(error)
            raise ConfigError(f"Line {number} of {path} is no dialogue: {what}.") from error
        if max((*dialogue.prompt_ids, *dialogue.answer_ids), default=0) >= tokenizer.vocabulary.size:
            raise ConfigError(f"Line {number} of {path} has an id that the target's vocabulary lacks.")
        yield dialogue


def _objects(path: Path) -> Iterator[tuple[int, dict[str, Any]]]:
    """(line number, object) of each line that is not blank, but for a last line that is being written."""
    try:
        lines = path.read_text(encoding="utf-8").split("\n")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path} cannot be read: {error}.") from error
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            body = json.loads(line)
        except ValueError as error:
            if number == len(lines):
                return
            raise ConfigError(f"Line {number} of {path} is no JSON: {error}.") from error
        if not isinstance(body, dict):
            raise ConfigError(f"Line {number} of {path} is no dialogue: it is no object.")
        yield number, body


def _generated(body: dict[str, Any]) -> Dialogue:
    return Dialogue(_ids(body, "prompt_ids"), _ids(body, "answer_ids"), float(body["temperature"]), body["source"])


def _from_text(tokenizer: TextTokenizer, body: dict[str, Any]) -> Dialogue:
    prompt_ids = tokenizer.render_chat([ChatMessage("user", str(body["user"]))])
    end = (_end_token(tokenizer),) if body["finish"] == "stop" else ()
    answer_ids = (*tokenizer.encode_fragment(str(body["assistant"])), *end)
    return Dialogue(prompt_ids, answer_ids, float(body["temperature"]), body["source"])


def _end_token(tokenizer: TextTokenizer) -> int:
    """The token that ends an answer: the tokenizer's own, or the only one that the model's files name."""
    own = dict(tokenizer.vocabulary.special_ids).get("eos")
    if own is None and len(tokenizer.eos_token_ids) != 1:
        raise ValueError("its answer has ended, and the model's files do not say which token ends one")
    return tokenizer.eos_token_ids[0] if own is None else own


def _ids(body: dict[str, Any], key: str) -> tuple[int, ...]:
    found = body[key]
    if not isinstance(found, list) or not all(type(entry) is int and entry >= 0 for entry in found):
        raise ValueError(f"'{key}' is no list of token ids")
    return tuple(found)


def _mix(token_ids: Sequence[int]) -> int:
    """A number that depends on all ids, the same on every machine."""
    mixed = 0xCBF29CE484222325
    for token_id in token_ids:
        mixed = ((mixed ^ token_id) * 0x100000001B3) & 0xFFFFFFFFFFFFFFFF
    return mixed >> 20
