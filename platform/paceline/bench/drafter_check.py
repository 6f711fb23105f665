"""Checks one drafter on one target: its contract, that answers are those of plain decoding, and what it is worth."""

from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from typing import NamedTuple, cast

from paceline.bench.drafter_contract import Finding, check_contract, violated
from paceline.bench.drafter_laws import check_laws
from paceline.bench.drafter_talk import Talk
from paceline.bench.engine_endpoint import EngineEndpoint
from paceline.bench.prompts import load_prompts, prompt_ids
from paceline.bench.provenance import collect_provenance
from paceline.bench.report import Result, Table
from paceline.bench.timed_drafter import TimedDrafter
from paceline.config.schema import DeploymentConfig, DrafterConfig, EngineConfig, ModelConfig, Tunables
from paceline.core.generation import ChoiceStats, GenerationChunk, GenerationRequest, RoundTrace
from paceline.core.plans import Plan, Route
from paceline.core.sampling_params import SamplingParams
from paceline.drafting.host import DrafterHost
from paceline.drafting.registry import build_drafter
from paceline.errors import EngineFailedError
from paceline.modeling.loader import load_config
from paceline.modeling.resolve import resolve_model
from paceline.telemetry import catalogue
from paceline.text.tokenizer import TextTokenizer

GROUP = "drafter"
_TEXT_TOKENS = 64  # of the contexts in the contract's dialogue
_TIMED = f"{TimedDrafter.__module__}:{TimedDrafter.__name__}"
_TEMPERATURES = (0.0, 1.0)

Say = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class CheckSetup:
    """What to check, and on what."""

    drafter: DrafterConfig
    model: ModelConfig
    num_prompts: int = 8
    max_tokens: int = 64
    max_draft_tokens: int = 5
    threads: int = 2
    seed: int = 0


class _Answer(NamedTuple):
    token_ids: tuple[int, ...]
    stats: ChoiceStats
    rounds: tuple[RoundTrace, ...]


class _Served(NamedTuple):
    """All answers at one temperature, in the order of the prompts."""

    temperature: float
    plain: list[_Answer]
    drafted: list[_Answer]

    @property
    def num_equal(self) -> int:
        """Drafted answers that are those of plain decoding."""
        return sum(one.token_ids == other.token_ids for one, other in zip(self.plain, self.drafted, strict=True))


async def check_drafter(setup: CheckSetup, say: Say = lambda _: None) -> Result:
    """Run all checks; the result's data has ``violated``, the sentences that do not hold.

    Raises ConfigError where there is no such drafter, and the errors of loading a model.
    """
    folder = resolve_model(setup.model.source, setup.model.revision)
    vocab_size = load_config(folder).vocab_size
    tokenizer = TextTokenizer.load(folder, vocab_size=vocab_size)
    config = _deployment(setup)
    provenance = collect_provenance(config=config.model_dump(mode="json"), seed=setup.seed)
    prompts = [prompt_ids(prompt.prompt, tokenizer) for prompt in load_prompts()[: setup.num_prompts]]
    text = tuple(token_id for prompt in prompts for token_id in prompt)
    say("contract")
    talk = Talk(
        build_drafter(
            GROUP, setup.drafter, DrafterHost(setup.model.device, target_folder=folder, target_dtype=setup.model.dtype)
        ).drafter,
        (text * _TEXT_TOKENS)[:_TEXT_TOKENS],
        vocab_size=vocab_size,
    )
    findings = [*check_contract(talk), check_laws(talk)]
    endpoint = EngineEndpoint.start(config)
    try:
        served = [await _serve(endpoint, prompts, setup, temperature, say) for temperature in _TEMPERATURES]
        findings += _findings(endpoint, served)
    finally:
        await endpoint.close()
    figures = {str(one.temperature): _figures(one) for one in served}
    data = {
        "findings": [{"claim": claim, "contradiction": seen} for claim, seen in findings],
        "violated": [f"{claim} Seen: {seen}." for claim, seen in violated(findings)],
        "figures": figures,
    }
    return Result("drafter", provenance, [_claims_table(findings), _figures_table(figures, setup)], data)


def _deployment(setup: CheckSetup) -> DeploymentConfig:
    timed = DrafterConfig(method=_TIMED, place="in_process", options={"section": setup.drafter.model_dump(mode="json")})
    return DeploymentConfig(
        model=setup.model,
        engine=EngineConfig(threads=setup.threads),
        drafters={GROUP: timed},
        tunables=Tunables(max_draft_tokens=setup.max_draft_tokens, draft_adaptive=False),
    )


async def _serve(
    endpoint: EngineEndpoint, prompts: Sequence[tuple[int, ...]], setup: CheckSetup, temperature: float, say: Say
) -> _Served:
    """Answer every prompt twice, plain and drafted, one at a time."""
    served = _Served(temperature, [], [])
    drafted = Plan(Route.SPECULATIVE, "check", GROUP, setup.max_draft_tokens)
    for number, prompt in enumerate(prompts):
        say(f"temperature {temperature:g}: prompt {number + 1} of {len(prompts)}")
        for plan, answers in ((Plan(Route.PLAIN, "check"), served.plain), (drafted, served.drafted)):
            request = GenerationRequest(
                key=f"{plan.route.value}-{temperature:g}-{number}/1",
                prompt_token_ids=prompt,
                sampling=SamplingParams(temperature=temperature, max_tokens=setup.max_tokens),
                seed=setup.seed + number,
                plan=plan,
                explain=True,
                tenant_salt=plan.route.value,
            )
            answers.append(await _answer(endpoint, request))
    return served


async def _answer(endpoint: EngineEndpoint, request: GenerationRequest) -> _Answer:
    chunks: list[GenerationChunk] = []
    stream = cast("AsyncGenerator[Sequence[GenerationChunk], None]", endpoint.backend.generate(request))
    async with aclosing(stream) as batches:
        async for batch in batches:
            chunks += batch
    stats = next((chunk.stats for chunk in chunks if chunk.stats), None)
    if stats is None:
        raise EngineFailedError("an answer ended without its counts")
    token_ids = tuple(token_id for chunk in chunks for token_id in chunk.token_ids)
    return _Answer(token_ids, stats, tuple(trace for chunk in chunks for trace in chunk.rounds))


def _findings(endpoint: EngineEndpoint, served: Sequence[_Served]) -> list[Finding]:
    """What serving showed."""
    findings = []
    for one in served:
        missed = len(one.plain) - one.num_equal
        findings.append(
            Finding(
                f"Answers at temperature {one.temperature:g} are those of plain decoding.",
                f"{missed} of {len(one.plain)} differ" if missed else None,
            )
        )
    metrics = endpoint.backend.metrics
    raised = metrics.value(catalogue.DRAFTER_FAILURES, group=GROUP)
    invalid = metrics.value(catalogue.DROPPED_DRAFTS, group=GROUP, reason="invalid")
    findings.append(Finding("Nothing is raised while it serves.", f"{raised:.0f} calls raised" if raised else None))
    findings.append(
        Finding("No proposal is refused while it serves.", f"{invalid:.0f} were no drafts" if invalid else None)
    )
    return findings


def _figures(served: _Served) -> dict[str, float | None]:
    """What the drafter is worth at one temperature. Times in milliseconds."""
    rounds = [trace for answer in served.drafted for trace in answer.rounds]
    tested = sum(answer.stats.tested for answer in served.drafted)
    accepted = sum(answer.stats.accepted for answer in served.drafted)
    passes = sum(answer.stats.rounds for answer in served.drafted)
    tokens = sum(answer.stats.completion_tokens for answer in served.drafted)
    draft_ms = sum(trace.draft_ms for trace in rounds)
    return {
        "answers": len(served.plain),
        "equal": served.num_equal,
        "alpha": accepted / tested if tested else None,
        "tau": tokens / passes if passes else None,
        "drafted_rounds_share": sum(bool(trace.drafted) for trace in rounds) / len(rounds) if rounds else None,
        "draft_ms_per_round": draft_ms / len(rounds) if rounds else None,
    }


def _claims_table(findings: Sequence[Finding]) -> Table:
    rows = [[claim, "holds" if seen is None else f"violated: {seen}"] for claim, seen in findings]
    return Table("What holds", ["claim", "finding"], rows)


def _figures_table(figures: Mapping[str, Mapping[str, float | None]], setup: CheckSetup) -> Table:
    rows = [
        [
            temperature,
            f"{row['equal']:.0f} of {row['answers']:.0f}",
            _number(row["alpha"]),
            _number(row["tau"]),
            _number(row["drafted_rounds_share"]),
            _number(row["draft_ms_per_round"]),
        ]
        for temperature, row in figures.items()
    ]
    notes = [
        "alpha: drafts accepted, of those tested. tau: tokens per target pass; 1 is plain decoding.",
        f"One answer at a time, chains of up to {setup.max_draft_tokens} drafts.",
    ]
    columns = ["temperature", "equal to plain", "alpha", "tau", "rounds with drafts", "drafting, ms a round"]
    return Table("What it is worth", columns, rows, notes)


def _number(value: float | None) -> str:
    return "unknown" if value is None else f"{value:.2f}"
