"""One run: a warm-up that does not count, then blocks in which all sides answer the same questions."""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from paceline.bench.compare import MIN_BLOCKS, block_orders
from paceline.bench.drive import run_closed, run_open
from paceline.bench.endpoint import Endpoint
from paceline.bench.load import PlannedRequest, TraceEntry, check_rate, closed_plan, open_plan, trace_plan
from paceline.bench.measure import Slo
from paceline.bench.prompts import BenchPrompt
from paceline.bench.provenance import collect_provenance
from paceline.bench.records import BenchQuestion, BlockRun, Sample
from paceline.bench.report import Result
from paceline.bench.run_report import run_result
from paceline.bench.variants import Variant
from paceline.errors import ConfigError

_WARMUP_TOKENS = 8
_NO_SLO = Slo()

Say = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class RunSetup:
    """What a run does. ``rate_per_s`` and ``trace`` make an open loop; without them it is a closed one."""

    prompts: Sequence[BenchPrompt]
    variants: Sequence[Variant]
    blocks: int = 5
    requests: int | None = None  # per block and variant; None: each prompt once
    concurrency: int = 1  # closed loop only
    rate_per_s: float | None = None
    trace: Sequence[TraceEntry] = ()
    max_tokens: int = 128
    warmup: int | None = None  # requests per variant; None: each prompt once
    timeout_s: float = 600.0
    seed: int = 0
    slo: Slo = _NO_SLO

    @property
    def is_open(self) -> bool:
        """Whether requests have times."""
        return self.rate_per_s is not None or bool(self.trace)


def check_setup(setup: RunSetup) -> None:
    """Raise ConfigError for a run that could not give a result."""
    if not setup.prompts:
        raise ConfigError("There are no prompts to ask.")
    if setup.rate_per_s is not None:
        check_rate(setup.rate_per_s)
    if setup.rate_per_s is not None and setup.trace:
        raise ConfigError("--rate and --trace are two schedules; choose one.")
    if len(setup.variants) > 1 and setup.blocks < MIN_BLOCKS:
        raise ConfigError(f"A comparison needs at least {MIN_BLOCKS} blocks; --blocks is {setup.blocks}.")


async def run_benchmark(endpoint: Endpoint, setup: RunSetup, say: Say = lambda _: None) -> Result:
    """Warm up, run all blocks, and put the result together."""
    check_setup(setup)
    before = collect_provenance(config={}, seed=setup.seed)
    say("warming up")
    for variant in setup.variants:
        await _warm_up(endpoint, setup, variant)
    provenance = replace(before, config=await endpoint.describe())  # some endpoints know themselves by an answer only
    by_name = {variant.name: variant for variant in setup.variants}
    runs = []
    for block, order in enumerate(block_orders(setup.blocks, tuple(by_name), seed=setup.seed)):
        plan = _plan(setup, block)
        for name in order:
            say(f"block {block + 1} of {setup.blocks}: {name}")
            runs.append(await _run_block(endpoint, setup, block, by_name[name], plan))
    return run_result(setup.variants, runs, slo=setup.slo, provenance=provenance, setup=_description(setup))


async def _warm_up(endpoint: Endpoint, setup: RunSetup, variant: Variant) -> None:
    """A short answer to each prompt: pages, threads and, where requests share one, the prefix cache are warm then."""
    count = len(setup.prompts) if setup.warmup is None else setup.warmup
    plan = closed_plan(setup.prompts, count, max_tokens=min(_WARMUP_TOKENS, setup.max_tokens))
    questions = _questions(plan, variant, seed=setup.seed, salt="warm-up")
    concurrency = setup.concurrency if not setup.is_open else 1
    samples = await run_closed(endpoint, questions, concurrency=concurrency, timeout_s=setup.timeout_s)
    failed = [sample for sample in samples if sample.recording is None]
    if samples and len(failed) == len(samples):
        raise ConfigError(f"Every request of the warm-up failed, the last with {failed[-1].error_detail}")


def _plan(setup: RunSetup, block: int) -> list[PlannedRequest]:
    """The requests of one block, the same for all sides."""
    seed = setup.seed + block
    if setup.trace:
        return trace_plan(setup.trace, setup.prompts, max_tokens=setup.max_tokens, seed=seed)
    count = setup.requests or len(setup.prompts)
    if setup.rate_per_s is not None:
        return open_plan(setup.prompts, count, max_tokens=setup.max_tokens, rate_per_s=setup.rate_per_s, seed=seed)
    return closed_plan(setup.prompts, count, max_tokens=setup.max_tokens)


async def _run_block(
    endpoint: Endpoint, setup: RunSetup, block: int, variant: Variant, plan: Sequence[PlannedRequest]
) -> BlockRun:
    salt = f"{variant.name}-{block}"
    questions = _questions(plan, variant, seed=setup.seed + block * len(plan), salt=salt)
    started_s = time.perf_counter()
    if setup.is_open:
        due = [request.at_s or 0.0 for request in plan]
        samples = await run_open(endpoint, questions, due, timeout_s=setup.timeout_s)
    else:
        samples = await run_closed(endpoint, questions, concurrency=setup.concurrency, timeout_s=setup.timeout_s)
    return BlockRun(block, variant.name, samples, _wall_s(samples, started_s))


def _questions(plan: Sequence[PlannedRequest], variant: Variant, *, seed: int, salt: str) -> list[BenchQuestion]:
    return [
        BenchQuestion(request.prompt.category, request.prompt.prompt, request.max_tokens, seed + index, variant, salt)
        for index, request in enumerate(plan)
    ]


def _wall_s(samples: Sequence[Sample], started_s: float) -> float:
    return max((sample.ended_s for sample in samples), default=started_s) - started_s


def _description(setup: RunSetup) -> Mapping[str, Any]:
    """The setup without the prompts' texts."""
    load = (
        {"trace_requests": len(setup.trace)}
        if setup.trace
        else {"rate_per_s": setup.rate_per_s}
        if setup.is_open
        else {"concurrency": setup.concurrency}
    )
    return {
        "load": load,
        "blocks": setup.blocks,
        "prompts": len(setup.prompts),
        "requests_per_block": setup.requests or len(setup.trace) or len(setup.prompts),
        "max_tokens": setup.max_tokens,
        "slo": asdict(setup.slo),
    }
