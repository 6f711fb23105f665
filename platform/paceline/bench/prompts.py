"""Prompts to measure with."""

import json
from dataclasses import dataclass
from pathlib import Path

from paceline.text.chat import ChatMessage
from paceline.text.tokenizer import TextTokenizer

DEFAULT_PROMPTS = Path(__file__).with_name("prompts.jsonl")


@dataclass(frozen=True, slots=True)
class BenchPrompt:
    """One prompt and the kind of work it stands for."""

    category: str
    prompt: str


def load_prompts(path: Path = DEFAULT_PROMPTS) -> tuple[BenchPrompt, ...]:
    """Prompts of a JSON-lines file with ``category`` and ``prompt``; by default the project's own."""
    lines = path.read_text(encoding="utf-8").splitlines()
    return tuple(BenchPrompt(**json.loads(line)) for line in lines if line.strip())


def prompt_ids(prompt: str, tokenizer: TextTokenizer) -> tuple[int, ...]:
    """Token ids of a prompt: a chat of one question where the model has a template, else the raw text."""
    if tokenizer.has_chat_template:
        return tokenizer.render_chat([ChatMessage("user", prompt)])
    return tokenizer.encode(prompt)
