"""Answers of a target, as a file that grows: one JSON line each, so that a run that ends early loses little."""

import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from paceline.bench.json_lines import read_json_lines


@dataclass(frozen=True, slots=True)
class Answer:
    """One prompt and what the target answered; ids of the target's tokenizer."""

    index: int  # of the dialogue in its run: what is there need not be made again
    prompt_ids: tuple[int, ...]  # with the chat template
    answer_ids: tuple[int, ...]
    temperature: float
    finish: str  # "stop" or "length"


class AnswerFile:
    """Appends answers and reads them back. A last line that was cut off in the middle is made again."""

    def __init__(self, path: Path) -> None:
        self._path = path
        if path.exists():
            _cut_torn_line(path)

    def append(self, answer: Answer) -> None:
        """Write one answer to the end."""
        with self._path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(asdict(answer), separators=(",", ":")) + "\n")

    def __iter__(self) -> Iterator[Answer]:
        """All answers. Raises ConfigError for a line that is none."""
        found = read_json_lines(self._path, _answer_of, what="answer") if self._path.exists() else []
        return iter(found)


def _answer_of(body: dict[str, Any]) -> Answer:
    answer = Answer(**body)
    return replace(answer, prompt_ids=tuple(answer.prompt_ids), answer_ids=tuple(answer.answer_ids))


def _cut_torn_line(path: Path) -> None:
    content = path.read_bytes()
    whole = content.rfind(b"\n") + 1
    if whole < len(content):
        path.write_bytes(content[:whole])
