"""The library alone on one device: v(n), batches, step overhead, and what drafts of a given quality are worth.

Random weights of a real model's shape, made on the device: no Ray, no network, no download.
"""

import itertools
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

import torch

from paceline.backends.native import NativeParts, assemble_engine
from paceline.bench.oracle import OracleDrafter, expected_tau
from paceline.bench.provenance import collect_provenance
from paceline.bench.random_model import LLAMA_8B, ModelShape, random_model, silent_tokenizer
from paceline.bench.report import Result, Table
from paceline.config.schema import DeploymentConfig, DrafterConfig, EngineConfig, ModelConfig, Tunables
from paceline.core.generation import GenerationChunk, GenerationRequest
from paceline.core.plans import Plan, Route
from paceline.core.sampling_params import SamplingParams
from paceline.errors import EngineFailedError, PacelineError
from paceline.kvcache.page_pool import PageTable
from paceline.modeling.forward_row import ForwardRow
from paceline.telemetry.metrics import Metrics

_TARGET_SAYS = 7  # a bias makes every target draw this id, whatever random weights and kernels' last bits say
_PREFILL_CHUNK = 1024
_PROMPT_TOKENS = 64
_MEMORY_SHARE = 0.7  # of what is free beside the weights, for the KV cache

Say = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class GpuSetup:
    """What is measured; the defaults take some minutes on a large GPU."""

    shape: ModelShape = LLAMA_8B
    device: str = "cuda"
    dtype: str = "bfloat16"
    sizes: Sequence[int] = (1, 2, 4, 8, 16, 32, 64)
    contexts: Sequence[int] = (128, 2048)
    batches: Sequence[int] = (1, 8, 32, 64)
    batch_context: int = 512
    batch_tokens: Sequence[int] = (1, 5)  # of each sequence in a pass
    engine_batches: Sequence[int] = (1, 16)
    alphas: Sequence[float] = (0.6, 0.8, 0.9)
    drafts: Sequence[int] = (2, 4, 8)
    answer_tokens: int = 96
    repeats: int = 15
    limit_s: float = 540.0  # what has not begun by then is left out, and the result says so
    seed: int = 0

    @property
    def cache_tokens(self) -> int:
        """Room for the largest point."""
        batch = max(self.batches) * (self.batch_context + max(self.batch_tokens))
        answers = max(self.engine_batches) * (_PROMPT_TOKENS + self.answer_tokens + max(self.drafts))
        return max(batch, max(self.contexts) + max(self.sizes), answers) + 1024


@dataclass(frozen=True, slots=True)
class _Decode:
    """Decoding of a batch in the engine."""

    tokens_per_s: float
    step_s: float  # median
    tau: float


class GpuBench:
    """One model on one device, and the points that are measured on it."""

    def __init__(self, setup: GpuSetup, say: Say) -> None:
        self._setup = setup
        self._say = say
        self._stop_at_s = time.perf_counter() + setup.limit_s
        self._left_out: list[str] = []
        self._keys = itertools.count()
        self._chunks: list[GenerationChunk] = []
        self._oracle = OracleDrafter(_TARGET_SAYS, alpha=1.0, seed=setup.seed)
        say(f"making {setup.shape.name} on {setup.device}")
        dtype = torch.bfloat16 if setup.dtype == "bfloat16" else torch.float32
        loaded = random_model(setup.shape, dtype=dtype, device=setup.device, seed=setup.seed)
        self._parts = assemble_engine(
            loaded,
            silent_tokenizer(setup.shape),
            self._config(),
            {"oracle": self._oracle},
            metrics=Metrics(),
            deliver=self._chunks.extend,
            on_error=_raise,
        )

    def run(self) -> Result:
        """All points within the time limit."""
        setup = self._setup
        config = {"shape": setup.shape.name, "device": setup.device, "dtype": setup.dtype}
        provenance = collect_provenance(config=config, seed=setup.seed)
        tables, data = [], dict[str, Any]()
        sections = (self._sizes, self._batches, self._engine_steps, self._drafting)
        for section in sections:
            table, found = section()
            tables.append(table)
            data[section.__name__.removeprefix("_")] = found
        if self._left_out:
            tables.append(Table("Left out for lack of time or memory", ["point"], [[name] for name in self._left_out]))
        return Result("gpu", provenance, tables, data | {"left_out": self._left_out})

    def _config(self) -> DeploymentConfig:
        setup = self._setup
        cache_tokens = setup.cache_tokens
        if setup.device == "cuda":
            free_bytes, _ = torch.cuda.mem_get_info()
            cache_tokens = min(cache_tokens, int(free_bytes * _MEMORY_SHARE) // setup.shape.kv_bytes_per_token)
        return DeploymentConfig(
            model=ModelConfig.model_validate(
                {"source": setup.shape.name, "dtype": setup.dtype, "device": setup.device}
            ),
            engine=EngineConfig(
                kv_cache_tokens=cache_tokens, max_running=max(setup.engine_batches), step_tokens=_PREFILL_CHUNK
            ),
            # The method is only a name here: the drafter is handed over as it is.
            drafters={"oracle": DrafterConfig(method="ngram", place="in_process")},
            # Every budget is measured as it is asked for, also where it does not pay.
            tunables=Tunables(max_draft_tokens=max(setup.drafts), draft_adaptive=False, shadow_share=0.0),
        )

    def _sizes(self) -> tuple[Table, Any]:
        rows, data = [], {}
        for context in self._setup.contexts:
            times = {
                size: seconds
                for size in self._setup.sizes
                if (seconds := self._point(f"v({size}) behind {context}", 1, size, context)) is not None
            }
            base = times.get(self._setup.sizes[0])
            for size, seconds in times.items():
                ratio = seconds / base if base else float("nan")
                rows.append([f"{size} behind {context}", f"{seconds * 1e3:.2f}", f"{ratio:.3f}"])
            data[str(context)] = {str(size): seconds for size, seconds in times.items()}
        return Table("v(n): one pass over n tokens of one sequence", ["n", "ms", "v(n)"], rows), data

    def _batches(self) -> tuple[Table, Any]:
        setup, rows, data = self._setup, [], {}
        for batch in setup.batches:
            for tokens in setup.batch_tokens:
                name = f"{batch} x {tokens}"
                seconds = self._point(name, batch, tokens, setup.batch_context)
                if seconds is not None:
                    rows.append([name, f"{seconds * 1e3:.2f}", f"{batch * tokens / seconds:.0f}"])
                    data[name] = seconds
        title = f"One pass over several sequences behind {setup.batch_context} tokens"
        return Table(title, ["sequences x tokens", "ms", "tokens/s"], rows), data

    def _engine_steps(self) -> tuple[Table, Any]:
        rows, data = [], {}
        for batch in self._setup.engine_batches:
            pass_s = self._point(f"pass of {batch}", batch, 1, _PROMPT_TOKENS + self._setup.answer_tokens // 2)
            if pass_s is None:
                continue
            found = self._decode(batch, drafts=0)
            overhead_s = found.step_s - pass_s
            share = f"{overhead_s / found.step_s:.0%}"
            rows.append(
                [str(batch), f"{found.step_s * 1e3:.2f}", f"{pass_s * 1e3:.2f}", f"{overhead_s * 1e3:.2f}", share]
            )
            data[str(batch)] = {"step_s": found.step_s, "pass_s": pass_s}
        columns = ["sequences", "step ms", "pass ms", "overhead ms", "share"]
        return Table("Plain decoding: the engine's step against its pass", columns, rows), data

    def _drafting(self) -> tuple[Table, Any]:
        setup, rows, data = self._setup, [], []
        for batch in setup.engine_batches:
            if self._late(f"drafting for {batch}"):
                continue
            plain = self._decode(batch, drafts=0)
            rows.append([str(batch), "plain", "", f"{plain.tokens_per_s:.1f}", "1.00", "1.00", ""])
            for alpha, drafts in itertools.product(setup.alphas, setup.drafts):
                if self._late(f"{batch} x alpha {alpha}, {drafts} drafts"):
                    continue
                self._oracle.alpha = alpha
                found = self._decode(batch, drafts=drafts)
                gain = found.tokens_per_s / plain.tokens_per_s
                expected = expected_tau(alpha, drafts)
                cells = [f"{found.tokens_per_s:.1f}", f"{gain:.2f}", f"{found.tau:.2f}", f"{expected:.2f}"]
                rows.append([str(batch), f"{alpha:g}", str(drafts), *cells])
                data.append({"batch": batch, "alpha": alpha, "drafts": drafts, "gain": gain, "tau": found.tau})
        columns = ["sequences", "alpha", "drafts", "tokens/s", "over plain", "tau", "expected tau"]
        notes = ["Chains from a drafter that costs nothing; each draft is right with probability alpha."]
        return Table("Drafts of a given acceptance", columns, rows, notes), data

    def _point(self, name: str, batch: int, tokens: int, context: int) -> float | None:
        """Median seconds of a pass; None if there is no time or no room for it."""
        pool = self._parts.runner.pool
        self._parts.scheduler.room.prefixes.clear()  # answers before left their prompts there
        if self._late(name):
            return None
        if not pool.can_reserve(batch * pool.pages_for(context + tokens)):
            self._left_out.append(name)
            return None
        self._say(name)
        return pass_seconds(self._parts, self._setup.device, (batch, tokens, context), self._setup.repeats)

    def _decode(self, batch: int, *, drafts: int) -> _Decode:
        """Decode ``batch`` answers together; only steps in which all of them decode are timed."""
        self._say(f"engine: {batch} answers, {drafts} drafts")
        route = Route.SPECULATIVE if drafts else Route.PLAIN
        plan = Plan(route, "a benchmark", "oracle" if drafts else None, drafts)
        sampling = SamplingParams(
            temperature=0.0,
            max_tokens=self._setup.answer_tokens,
            ignore_eos=True,
            logit_bias=((_TARGET_SAYS, 1e4),),
        )
        prompt = tuple(range(10, 10 + _PROMPT_TOKENS))
        engine = self._parts.engine
        self._chunks.clear()
        for _ in range(batch):
            key = f"gpu-{next(self._keys)}/1"
            engine.add(GenerationRequest(key, prompt, sampling, 0, plan, tenant_salt=key))
        steps: list[tuple[float, int]] = []  # (seconds, tokens) of steps in which all decode
        seen = 0
        while engine.has_work:
            all_decode = all(s.decoding for s in self._parts.scheduler.running) and not self._parts.scheduler.waiting
            all_decode &= len(self._parts.scheduler.running) == batch
            started_s = time.perf_counter()
            engine.step()
            _synchronize(self._setup.device)
            arrived = sum(len(chunk.token_ids) for chunk in self._chunks)
            if all_decode:
                steps.append((time.perf_counter() - started_s, arrived - seen))
            seen = arrived
        stats = [chunk.stats for chunk in self._chunks if chunk.stats]
        tau = sum(s.completion_tokens for s in stats) / sum(s.rounds for s in stats)
        seconds, tokens = sum(s for s, _ in steps), sum(count for _, count in steps)
        return _Decode(tokens / seconds, median(s for s, _ in steps), tau)

    def _late(self, name: str) -> bool:
        """Whether time is up; ``name`` is then left out."""
        if time.perf_counter() < self._stop_at_s:
            return False
        self._left_out.append(name)
        return True


def pass_seconds(parts: NativeParts, device: str, point: tuple[int, int, int], repeats: int) -> float:
    """Median seconds of a target pass over ``point`` = (sequences, tokens of each, context of each)."""
    batch, tokens, context = point
    runner = parts.runner
    tables = [PageTable(runner.pool, context + tokens) for _ in range(batch)]
    for table in tables:
        for start in range(0, context, _PREFILL_CHUNK):
            stop = min(context, start + _PREFILL_CHUNK)
            table.extend_to(stop)
            runner.forward([ForwardRow([i % runner.vocab_size for i in range(start, stop)], start, table, 0)])
    times = []
    for _ in range(repeats + 2):
        rows = []
        for table in tables:
            table.extend_to(context + tokens)
            rows.append(ForwardRow(list(range(tokens)), context, table, tokens))
        _synchronize(device)
        started_s = time.perf_counter()
        runner.forward(rows)
        _synchronize(device)
        times.append(time.perf_counter() - started_s)
        for table in tables:
            table.truncate(context)
    for table in tables:
        table.free()
    return median(times[2:])  # the first ones warm up


def _synchronize(device: str) -> None:
    if device == "cuda":
        torch.cuda.synchronize()


def _raise(keys: list[str], error: PacelineError) -> None:
    raise EngineFailedError(f"{', '.join(keys)}: {error}")
