"""Cost of target passes: plain decoding against Transformers and bare matrix products, 16 at a time, and v(n)."""

import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from functools import partial

from paceline.bench.pass_candidates import STOCK_KINDS, EngineCandidate, StockCandidate, speed_of
from paceline.bench.pass_matmuls import MATMUL_KINDS, MATMUL_ROWS, CompiledMatmuls, OneDnnMatmuls
from paceline.bench.pass_records import Chosen, PassBlock, PassSetup
from paceline.bench.pass_report import pass_tables
from paceline.bench.provenance import collect_provenance
from paceline.bench.report import Result
from paceline.bench.run import Say
from paceline.bench.worker import Worker
from paceline.errors import ConfigError, EngineFailedError

_SELECTION_PROMPTS = 2
_SELECTION_TOKENS = 24
_FEW_ROWS = (1, 4)  # of a pass for one token; some products are faster with four


def run_pass_bench(setup: PassSetup, say: Say) -> Result:
    """Choose each candidate's best thread count, then measure all of them in interleaved blocks."""
    if len(setup.prompts) < setup.blocks:
        raise ConfigError(f"{setup.blocks} blocks need at least as many prompts; there are {len(setup.prompts)}.")
    provenance = collect_provenance(config={"model": setup.folder.name, "dtype": setup.dtype}, seed=setup.seed)
    chosen = _choose(setup, say)
    with ExitStack() as stack:
        workers = {role: stack.enter_context(_worker(setup, kind, threads)) for role, (kind, threads) in chosen.items()}
        blocks = []
        for index, prompts in enumerate(_deal(setup)):
            say(f"block {index + 1} of {setup.blocks}")
            blocks.append(_measure(setup, workers, prompts, index))
    tables, data = pass_tables(setup, chosen, blocks)
    return Result("pass", provenance, tables, data)


def _worker(setup: PassSetup, kind: str, threads: int) -> Worker:
    builders: dict[str, Callable[[], object]] = {
        "engine": partial(EngineCandidate, setup.spec, threads, setup.parallel),
        "compiled": partial(CompiledMatmuls, setup.spec),
        "onednn": partial(OneDnnMatmuls, setup.spec),
        **{name: partial(StockCandidate, setup.spec, name) for name in STOCK_KINDS},
    }
    return Worker(builders[kind], threads=threads)


def _choose(setup: PassSetup, say: Say) -> Chosen:
    """Role -> (kind, threads) of the fastest candidate, by a short run after a warm-up."""
    speeds: dict[str, dict[tuple[str, int], float]] = {"engine": {}, "stock": {}, "matmuls": {}, "parallel": {}}
    for threads in setup.threads:
        for kind in ("engine", *STOCK_KINDS, *MATMUL_KINDS):
            say(f"choosing: {kind}, {threads} threads")
            try:
                with _worker(setup, kind, threads) as worker:
                    for role, speed in _short_runs(setup, kind, worker):
                        speeds[role][kind, threads] = speed
            except EngineFailedError as error:  # one form that this model or machine does not have
                say(f"left out: {kind}: {error}")
    if missing := [role for role, found in speeds.items() if not found]:
        raise ConfigError(f"Nothing here can be measured as {', '.join(missing)}.")
    return {role: max(found, key=found.__getitem__) for role, found in speeds.items()}


def _short_runs(setup: PassSetup, kind: str, worker: Worker) -> Iterator[tuple[str, float]]:
    """(role, speed) of each role that a candidate may play; the first call of each is its warm-up."""
    if kind in MATMUL_KINDS:
        times = []
        for rows in _FEW_ROWS:
            worker.call("passes", rows, 2)
            times.append(worker.call("passes", rows, _SELECTION_TOKENS))
        yield "matmuls", 1 / min(times)
        return
    tokens = min(_SELECTION_TOKENS, setup.num_tokens)
    prompts = setup.prompts[:_SELECTION_PROMPTS]
    worker.call("generate", prompts[:1], 4)
    yield "engine" if kind == "engine" else "stock", speed_of([worker.call("generate", [p], tokens) for p in prompts])
    if kind == "engine":
        together = [setup.prompts[number % len(setup.prompts)] for number in range(setup.parallel)]
        worker.call("generate", together, 2)
        yield "parallel", speed_of([worker.call("generate", together, max(2, tokens // 4))])


def _deal(setup: PassSetup) -> list[list[tuple[int, ...]]]:
    """The prompts, shuffled and dealt to the blocks."""
    shuffled = list(setup.prompts)
    random.Random(setup.seed).shuffle(shuffled)
    return [shuffled[block :: setup.blocks] for block in range(setup.blocks)]


def _measure(
    setup: PassSetup, workers: Mapping[str, Worker], prompts: Sequence[tuple[int, ...]], index: int
) -> PassBlock:
    """One block: candidates in an order that is drawn anew for each prompt, then the passes."""
    draw = random.Random(setup.seed * 1000 + index)
    block = PassBlock()
    matmul_s: dict[int, float] = dict.fromkeys(MATMUL_ROWS, 0.0)
    for prompt in prompts:
        for role in draw.sample(("engine", "stock", "matmuls"), 3):
            if role == "matmuls":
                for rows in MATMUL_ROWS:
                    matmul_s[rows] += workers[role].call("passes", rows, setup.num_tokens)
            else:
                getattr(block, role).append(workers[role].call("generate", [prompt], setup.num_tokens))
    passes = setup.num_tokens * len(prompts)
    block.matmul_s = {rows: seconds / passes for rows, seconds in matmul_s.items()}
    together = [prompts[number % len(prompts)] for number in range(setup.parallel)]
    block.together = [workers["parallel"].call("generate", together, setup.num_tokens)]
    order = draw.sample([size for size in setup.sizes for _ in range(setup.repeats)], len(setup.sizes) * setup.repeats)
    times = workers["engine"].call("pass_times", [setup.sizes[0], *order], setup.context)[1:]  # the first warms up
    for size, seconds in zip(order, times, strict=True):
        block.pass_s.setdefault(size, []).append(seconds)
    return block
