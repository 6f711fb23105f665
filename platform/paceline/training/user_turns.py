"""Where the questions come from that a target answers for training."""

from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any, Protocol

from paceline.bench.json_lines import read_json_lines
from paceline.errors import ConfigError
from paceline.text.chat import ChatMessage
from paceline.text.tokenizer import TextTokenizer
from paceline.training.exclusion import Exclusion

Complete = Callable[[Sequence[int], int], Awaitable[Sequence[int]]]  # (prompt ids, index) -> what the model writes

_KEYS = ("user", "prompt")  # of a JSON line


class UserTurns(Protocol):
    """Questions by index."""

    async def turn(self, index: int) -> str | None:
        """The question of dialogue ``index``; None where it has none."""


class FileTurns:
    """Questions of a JSON-lines file with ``user`` or ``prompt``, over and over."""

    def __init__(self, path: Path, exclusion: Exclusion) -> None:
        """Read all of them. Raises ConfigError that names the line, or says that nothing is left."""
        self._turns = [
            text for text in read_json_lines(path, _question_of, what="question") if not exclusion.matches(text)
        ]
        if not self._turns:
            raise ConfigError(f"{path} has no question that may be trained on.")

    async def turn(self, index: int) -> str | None:
        """The question of dialogue ``index``."""
        return self._turns[index % len(self._turns)]


class OwnTurns:
    """Questions that the model makes up, given its chat template up to the user's words (Magpie, Xu et al. 2024)."""

    def __init__(self, tokenizer: TextTokenizer, complete: Complete, exclusion: Exclusion) -> None:
        """Ask through ``complete``, which ends where the model ends the user's turn."""
        self._tokenizer = tokenizer
        self._complete = complete
        self._exclusion = exclusion
        self._prefix = _before_the_user(tokenizer)

    async def turn(self, index: int) -> str | None:
        """The question of dialogue ``index``; None if the model wrote nothing, or what must not be trained on."""
        text = self._tokenizer.decode(await self._complete(self._prefix, index)).strip()
        return None if not text or self._exclusion.matches(text) else text


def _before_the_user(tokenizer: TextTokenizer) -> tuple[int, ...]:
    """What the chat template writes before the user's first word."""
    marker = "\N{SNOWMAN}marker\N{SNOWMAN}"
    before, found, _ = tokenizer.render([ChatMessage("user", marker)]).partition(marker)
    if not found:
        raise ConfigError("The chat template changes the user's words: give questions in a file with --prompts.")
    return tokenizer.encode_fragment(before)


def _question_of(body: dict[str, Any]) -> str:
    for key in _KEYS:
        if key in body:
            return str(body[key])
    raise ValueError(f"it has none of the keys {', '.join(_KEYS)}")
