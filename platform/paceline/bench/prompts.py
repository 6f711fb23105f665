"""Prompts to measure with."""

from dataclasses import dataclass
from pathlib import Path

from paceline.bench.json_lines import read_json_lines
from paceline.text.chat import ChatMessage
from paceline.text.tokenizer import TextTokenizer

DEFAULT_PROMPTS = Path(__file__).with_name("prompts.jsonl")


@dataclass(frozen=True, slots=True)
class BenchPrompt:
    """One prompt and the kind of work it stands for."""

    category: str
    prompt: str


def load_prompts(path: Path = DEFAULT_PROMPTS) -> tuple[BenchPrompt, ...]:
    """Prompts of a JSON-lines file with ``category`` and ``prompt``; by default the project's own.

    Raises ConfigError that names the file or the line.
    """
    return tuple(read_json_lines(path, lambda body: BenchPrompt(**body), what="prompt"))


def prompt_ids(prompt: str, tokenizer: TextTokenizer) -> tuple[int, ...]:
    """Token ids of a prompt: a chat of one question where the model has a template, else the raw text."""
    if tokenizer.has_chat_template:
        return tokenizer.render_chat([ChatMessage("user", prompt)])
    return tokenizer.encode(prompt)
