"""When requests arrive and what they ask: pure functions of a seed."""

import math
import random
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from paceline.bench.json_lines import read_json_lines
from paceline.bench.prompts import BenchPrompt
from paceline.errors import ConfigError

_TOKENS_PER_WORD = 1.3  # of English text in common vocabularies; the answer says how many tokens it really was


@dataclass(frozen=True, slots=True)
class TraceEntry:
    """One line of a trace: when a request arrives, and what it looks like."""

    at_s: float
    category: str = "trace"
    prompt: str | None = None  # None: made up, `prompt_tokens` long or drawn from the prompts
    prompt_tokens: int | None = None
    max_tokens: int | None = None


@dataclass(frozen=True, slots=True)
class PlannedRequest:
    """One request of a block. ``at_s`` counts from the block's start; None in a closed loop."""

    prompt: BenchPrompt
    max_tokens: int
    at_s: float | None = None


def check_rate(rate_per_s: float) -> None:
    """Raise ConfigError for a rate at which nothing would ever arrive."""
    if not 0 < rate_per_s < math.inf:
        raise ConfigError("--rate must be above 0 requests per second.")


def poisson_arrivals(rate_per_s: float, count: int, *, seed: int) -> list[float]:
    """``count`` arrival times of a Poisson process: gaps are exponential with mean ``1 / rate_per_s``."""
    check_rate(rate_per_s)
    draw = random.Random(seed)
    times, now_s = [], 0.0
    for _ in range(count):
        now_s += draw.expovariate(rate_per_s)
        times.append(now_s)
    return times


def read_trace(path: Path) -> list[TraceEntry]:
    """Entries of a JSON-lines file, sorted by ``at_s``. Raises ConfigError that names the line."""
    entries = read_json_lines(path, _trace_entry, what="request")
    if not entries:
        raise ConfigError(f"The trace {path} has no requests.")
    return sorted(entries, key=lambda entry: entry.at_s)


def closed_plan(prompts: Sequence[BenchPrompt], count: int, *, max_tokens: int) -> list[PlannedRequest]:
    """``count`` requests, prompt after prompt, begun again where they end."""
    return [PlannedRequest(prompts[index % len(prompts)], max_tokens) for index in range(count)]


def open_plan(
    prompts: Sequence[BenchPrompt], count: int, *, max_tokens: int, rate_per_s: float, seed: int
) -> list[PlannedRequest]:
    """``count`` requests at the times of a Poisson process."""
    times = poisson_arrivals(rate_per_s, count, seed=seed)
    plan = closed_plan(prompts, count, max_tokens=max_tokens)
    return [replace(request, at_s=at_s) for request, at_s in zip(plan, times, strict=True)]


def trace_plan(
    entries: Sequence[TraceEntry], prompts: Sequence[BenchPrompt], *, max_tokens: int, seed: int
) -> list[PlannedRequest]:
    """The requests of a trace; ``max_tokens`` where it names none."""
    draw = random.Random(seed)
    return [
        PlannedRequest(_trace_prompt(entry, prompts, draw), entry.max_tokens or max_tokens, entry.at_s)
        for entry in entries
    ]


def _trace_entry(body: dict[str, Any]) -> TraceEntry:
    """Raises TypeError or ValueError for what cannot be asked."""
    entry = TraceEntry(**body)
    lengths = [entry.prompt_tokens, entry.max_tokens]
    if not 0 <= float(entry.at_s) < math.inf or any(length is not None and length < 1 for length in lengths):
        raise ValueError("at_s must be at least 0, prompt_tokens and max_tokens at least 1")
    return replace(entry, at_s=float(entry.at_s))


def _trace_prompt(entry: TraceEntry, prompts: Sequence[BenchPrompt], draw: random.Random) -> BenchPrompt:
    if entry.prompt is not None:
        return BenchPrompt(entry.category, entry.prompt)
    if entry.prompt_tokens is None:
        return draw.choice(prompts)
    words: list[str] = []
    wanted = max(1, round(entry.prompt_tokens / _TOKENS_PER_WORD))
    while len(words) < wanted:
        words += draw.choice(prompts).prompt.split()
    return BenchPrompt(entry.category, " ".join(words[:wanted]))
