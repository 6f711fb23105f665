"""Cost of target passes: plain decoding against Transformers and bare matrix products, 16 at a time, and v(n)."""

import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from functools import partial
from typing import Any

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
    with ExitStack() as stack:
        workers = _start(setup, stack, say)
        chosen = _choose(setup, workers, say)
        for kind in workers.keys() - {kind for kind, _ in chosen.values()}:
            workers[kind].close()
        blocks = []
        for index, prompts in enumerate(_deal(setup)):
            say(f"block {index + 1} of {setup.blocks}")
            blocks.append(_Measuring(setup, workers, chosen).block(prompts, index))
    tables, data = pass_tables(setup, chosen, blocks)
    return Result("pass", provenance, tables, data)


def _start(setup: PassSetup, stack: ExitStack, say: Say) -> dict[str, Worker]:
    """A worker for each kind of candidate that this model and machine have."""
    builders: dict[str, Callable[[], object]] = {
        "engine": partial(EngineCandidate, setup.spec, setup.parallel),
        **{kind: partial(StockCandidate, setup.spec, kind) for kind in STOCK_KINDS},
        "compiled": partial(CompiledMatmuls, setup.spec),
        "onednn": partial(OneDnnMatmuls, setup.spec),
    }
    workers = {}
    for kind, build in builders.items():
        say(f"starting: {kind}")
        try:
            workers[kind] = stack.enter_context(Worker(build))
        except EngineFailedError as error:
            say(f"left out: {kind}: {error}")
    return workers


def _choose(setup: PassSetup, workers: Mapping[str, Worker], say: Say) -> Chosen:
    """Role -> (kind, threads) of the fastest candidate, by a short run after a warm-up."""
    speeds: dict[str, dict[tuple[str, int], float]] = {"engine": {}, "stock": {}, "matmuls": {}, "parallel": {}}
    for threads in setup.threads:
        for kind, worker in workers.items():
            say(f"choosing: {kind}, {threads} threads")
            for role, speed in _short_runs(setup, kind, partial(worker.call, threads=threads)):
                speeds[role][kind, threads] = speed
    if missing := [role for role, found in speeds.items() if not found]:
        raise ConfigError(f"Nothing here can be measured as {', '.join(missing)}.")
    return {role: max(found, key=found.__getitem__) for role, found in speeds.items()}


def _short_runs(setup: PassSetup, kind: str, call: Callable[..., Any]) -> Iterator[tuple[str, float]]:
    """(role, speed) of each role that a candidate may play; the first call of each is its warm-up."""
    if kind in MATMUL_KINDS:
        times = []
        for rows in _FEW_ROWS:
            call("passes", rows, 2)
            times.append(call("passes", rows, _SELECTION_TOKENS))
        yield "matmuls", 1 / min(times)
        return
    tokens = min(_SELECTION_TOKENS, setup.num_tokens)
    prompts = setup.prompts[:_SELECTION_PROMPTS]
    call("generate", prompts[:1], 4)
    yield "engine" if kind == "engine" else "stock", speed_of([call("generate", [p], tokens) for p in prompts])
    if kind == "engine":
        together = _together(setup, setup.prompts)
        call("generate", together, 2)
        yield "parallel", speed_of([call("generate", together, max(2, tokens // 4))])


def _deal(setup: PassSetup) -> list[list[tuple[int, ...]]]:
    """The prompts, shuffled and dealt to the blocks."""
    shuffled = list(setup.prompts)
    random.Random(setup.seed).shuffle(shuffled)
    return [shuffled[block :: setup.blocks] for block in range(setup.blocks)]


def _together(setup: PassSetup, prompts: Sequence[tuple[int, ...]]) -> list[tuple[int, ...]]:
    """As many prompts as run at a time, begun again where they end."""
    return [prompts[number % len(prompts)] for number in range(setup.parallel)]


class _Measuring:
    """Measures blocks with the chosen candidates."""

    def __init__(self, setup: PassSetup, workers: Mapping[str, Worker], chosen: Chosen) -> None:
        self._setup = setup
        self._calls = {role: partial(workers[kind].call, threads=threads) for role, (kind, threads) in chosen.items()}

    def block(self, prompts: Sequence[tuple[int, ...]], index: int) -> PassBlock:
        """Candidates in an order that is drawn anew for each prompt, then many at a time, then the passes."""
        setup = self._setup
        draw = random.Random(setup.seed * 1000 + index)
        found = PassBlock()
        matmul_s = dict.fromkeys(MATMUL_ROWS, 0.0)
        for prompt in prompts:
            for role in draw.sample(("engine", "stock", "matmuls"), 3):
                if role == "matmuls":
                    for rows in MATMUL_ROWS:
                        matmul_s[rows] += self._calls[role]("passes", rows, setup.num_tokens)
                else:
                    getattr(found, role).append(self._calls[role]("generate", [prompt], setup.num_tokens))
        passes = setup.num_tokens * len(prompts)
        found.matmul_s = {rows: seconds / passes for rows, seconds in matmul_s.items()}
        found.together = [self._calls["parallel"]("generate", _together(setup, prompts), setup.num_tokens)]
        self._measure_sizes(found, draw)
        return found

    def _measure_sizes(self, found: PassBlock, draw: random.Random) -> None:
        setup = self._setup
        order = [size for size in setup.sizes for _ in range(setup.repeats)]
        draw.shuffle(order)
        times = self._calls["engine"]("pass_times", [setup.sizes[0], *order], setup.context)[1:]  # the first warms up
        for size, seconds in zip(order, times, strict=True):
            found.pass_s.setdefault(size, []).append(seconds)
