"""Asks drafters about prompts that they never saw, through the engine and the verifiers that serve them."""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from paceline.bench.drive import run_closed
from paceline.bench.endpoint import Endpoint
from paceline.bench.engine_endpoint import EngineEndpoint
from paceline.bench.json_lines import read_json_lines
from paceline.bench.prompts import BenchPrompt
from paceline.bench.records import BenchQuestion, Sample
from paceline.bench.variants import Variant
from paceline.config.schema import DeploymentConfig, Tunables
from paceline.errors import ConfigError
from paceline.training.acceptance_figures import DraftedAnswer, drafted_answer

_BUDGET = re.compile(r"(\d+)(?:x(\d+))?")

Say = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Budget:
    """What a drafter may draft in one round."""

    nodes: int
    top_k: int = 1  # alternatives after one token; 1: chains

    @property
    def name(self) -> str:
        """As it is written: ``5`` for chains of five, ``16x4`` for trees of 16 nodes with up to 4 alternatives."""
        return f"{self.nodes}" if self.top_k == 1 else f"{self.nodes}x{self.top_k}"

    def tunables(self, tunables: Tunables) -> Tunables:
        """``tunables`` with this budget in every round: no adaptation, no round spent on another group."""
        changes = {
            "max_draft_tokens": self.nodes,
            "draft_top_k": self.top_k,
            "draft_adaptive": False,
            "shadow_share": 0.0,
            "speculation_enabled": True,
        }
        return Tunables.model_validate(tunables.model_dump() | changes)


@dataclass(frozen=True, slots=True)
class PromptSet:
    """Prompts of one file."""

    name: str
    prompts: tuple[BenchPrompt, ...]


@dataclass(frozen=True, slots=True)
class EvaluationSetup:
    """What is asked. ``budgets`` is empty where the endpoint keeps its own."""

    sets: Sequence[PromptSet]
    groups: Sequence[str]
    budgets: Sequence[Budget]
    temperatures: Sequence[float]
    max_tokens: int
    concurrency: int
    seed: int
    timeout_s: float = 600.0


class CellKey(NamedTuple):
    """One cell of the evaluation."""

    prompts: str
    group: str
    budget: str
    temperature: float


@dataclass(frozen=True, slots=True)
class Cell:
    """All answers of one drafter under one budget at one temperature; ``errors``: reasons of those that failed."""

    key: CellKey
    answers: tuple[DraftedAnswer, ...]
    errors: tuple[str, ...]


def read_budget(text: str) -> Budget:
    """Read ``5`` or ``16x4``. Raises ConfigError."""
    found = _BUDGET.fullmatch(text)
    budget = Budget(int(found[1]), int(found[2] or 1)) if found else None
    if budget is None or not 1 <= budget.nodes <= 64 or not 1 <= budget.top_k <= 16:
        raise ConfigError(
            f"--budget '{text}': write the number of drafts, such as 5 for chains, or drafts x alternatives, such as "
            "16x4 for trees; at most 64 drafts and 16 alternatives."
        )
    return budget


def read_prompts(path: Path, *, per_category: int | None = None) -> PromptSet:
    """Prompts of a file of the bench, or of one with ``turns`` as in Spec-Bench, of which the first turn is asked.

    ``per_category`` keeps only the first so many of each category. Raises ConfigError that names the line.
    """
    taken: dict[str, list[BenchPrompt]] = {}
    for prompt in read_json_lines(path, _prompt_of, what="prompt"):
        of_category = taken.setdefault(prompt.category, [])
        if per_category is None or len(of_category) < per_category:
            of_category.append(prompt)
    prompts = tuple(prompt for of_category in taken.values() for prompt in of_category)
    if not prompts:
        raise ConfigError(f"{path} has no prompts.")
    return PromptSet(path.stem, prompts)


async def evaluate(endpoint: Endpoint, setup: EvaluationSetup, say: Say = lambda _: None) -> list[Cell]:
    """Ask every prompt of every drafter, under every budget, at every temperature.

    Raises ConfigError for a drafter that did not draft at all, or if every answer of a cell failed.
    """
    cells = []
    for budget in setup.budgets or (None,):
        if budget is not None:
            _use_budget(endpoint, budget)
        for group in setup.groups:
            for temperature in setup.temperatures:
                for prompts in setup.sets:
                    name = budget.name if budget else "as served"
                    key = CellKey(prompts.name, group, name, temperature)
                    say(f"{group}, budget {name}, temperature {temperature:g}, {prompts.name}")
                    cells.append(await _cell(endpoint, setup, key, prompts, budget))
    return cells


def evaluation_config(config: DeploymentConfig, *, concurrency: int, room_tokens: int) -> DeploymentConfig:
    """``config`` with room for ``concurrency`` answers of ``room_tokens`` with their prompts, and nothing cached.

    A prefix cache changes no draft, but the order of the cells would decide what is in it.
    """
    engine: dict[str, Any] = {
        "max_running": concurrency,
        "max_waiting": max(config.engine.max_waiting, concurrency),
        "kv_cache_tokens": max(config.engine.kv_cache_tokens, concurrency * room_tokens),
        "prefix_cache": False,
    }
    return config.model_copy(update={"engine": config.engine.model_copy(update=engine)})


def _use_budget(endpoint: Endpoint, budget: Budget) -> None:
    if not isinstance(endpoint, EngineEndpoint):
        raise ConfigError("A running deployment has budgets of its own: leave --budget out with --grpc.")
    endpoint.backend.apply_tunables(budget.tunables(Tunables()))


async def _cell(
    endpoint: Endpoint, setup: EvaluationSetup, key: CellKey, prompts: PromptSet, budget: Budget | None
) -> Cell:
    variant = Variant(
        key.group,
        speculation="on",
        drafter=key.group,
        max_draft_tokens=budget.nodes if budget else None,
        temperature=key.temperature,
    )
    questions = [
        BenchQuestion(prompt.category, prompt.prompt, setup.max_tokens, setup.seed + index, variant)
        for index, prompt in enumerate(prompts.prompts)
    ]
    samples = await run_closed(endpoint, questions, concurrency=setup.concurrency, timeout_s=setup.timeout_s)
    return _counted(key, samples)


def _counted(key: CellKey, samples: Sequence[Sample]) -> Cell:
    answers = tuple(
        drafted_answer(sample.recording, prompt=index, category=sample.question.category)
        for index, sample in enumerate(samples)
        if sample.recording
    )
    if not answers:
        raise ConfigError(f"No prompt of {key.prompts} was answered; the last failed with {samples[-1].error_detail}")
    if not any(answer.drafted_rounds for answer in answers):
        raise ConfigError(f"Drafter group '{key.group}' drafted nothing for {key.prompts}; is it live?")
    return Cell(key, answers, tuple(sample.error for sample in samples if sample.error))


def _prompt_of(body: dict[str, Any]) -> BenchPrompt:
    if "turns" in body:
        return BenchPrompt(str(body["category"]), str(body["turns"][0]))
    return BenchPrompt(**body)
