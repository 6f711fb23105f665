"""Keeps the prompts that drafters are measured with out of what they are trained on."""

import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from paceline.bench.json_lines import read_json_lines

_SHORTEST = 20  # characters; a shorter text is only excluded as a whole, since it may stand inside any other
_NOT_A_WORD = re.compile(r"\W+")


class Exclusion:
    """Knows texts that training data must not contain. Case, punctuation and spaces make no difference."""

    def __init__(self, texts: Iterable[str]) -> None:
        self._texts = frozenset(filter(None, map(normalised, texts)))
        self._long = tuple(text for text in self._texts if len(text) >= _SHORTEST)

    def __len__(self) -> int:
        return len(self._texts)

    def matches(self, text: str) -> bool:
        """Whether ``text`` is an excluded text, or contains one."""
        words = normalised(text)
        return words in self._texts or any(excluded in words for excluded in self._long)


def excluded_texts(path: Path) -> list[str]:
    """All prompts of a JSON-lines file with ``prompt`` or ``turns`` (as in Spec-Bench). Raises ConfigError."""
    return [text for texts in read_json_lines(path, _texts_of, what="prompt") for text in texts]


def normalised(text: str) -> str:
    """The words of a text in lower case: what two texts are compared by."""
    return _NOT_A_WORD.sub(" ", text.lower()).strip()


def _texts_of(body: dict[str, Any]) -> list[str]:
    if "turns" in body:
        return [str(turn) for turn in body["turns"]]
    if "prompt" in body:
        return [str(body["prompt"])]
    raise ValueError("it has neither 'prompt' nor 'turns'")
