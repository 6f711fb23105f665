"""What `bench pass` compares: the engine, and Transformers' own `generate`."""

import itertools
import time
from collections.abc import Sequence
from typing import Any, NamedTuple

import torch

from paceline.backends.native import assemble_native
from paceline.bench.stock_model import ModelSpec, load_stock
from paceline.config.schema import DeploymentConfig, EngineConfig, ModelConfig
from paceline.core.generation import GenerationChunk, GenerationRequest
from paceline.core.plans import Plan, Route
from paceline.core.sampling_params import SamplingParams
from paceline.errors import EngineFailedError, PacelineError
from paceline.kvcache.page_pool import PageTable
from paceline.modeling.forward_row import ForwardRow
from paceline.telemetry.metrics import Metrics

_PLAIN = Plan(Route.PLAIN, "a benchmark of plain decoding")
_SLACK_TOKENS = 256  # of the KV cache, beyond what a call needs

STOCK_KINDS = ("eager", "sdpa", "static")


class Timing(NamedTuple):
    """One call. ``first_s`` is when the first token of the first answer was there; ``tokens`` are of all answers."""

    seconds: float
    first_s: float
    tokens: int


def tokens_of(timings: Sequence[Timing]) -> int:
    """All tokens."""
    return sum(timing.tokens for timing in timings)


def seconds_of(timings: Sequence[Timing]) -> float:
    """All time."""
    return sum(timing.seconds for timing in timings)


def speed_of(timings: Sequence[Timing]) -> float:
    """Tokens per second: sum over sum."""
    return tokens_of(timings) / seconds_of(timings)


class EngineCandidate:
    """The native engine, stepped directly: plain decoding without threads, queues or doors."""

    def __init__(self, spec: ModelSpec, max_running: int) -> None:
        self._arrived = 0
        self._first_s = 0.0
        self._keys = itertools.count()
        config = DeploymentConfig(
            model=ModelConfig.model_validate({"source": str(spec.folder), "dtype": spec.dtype}),
            engine=EngineConfig(
                threads=torch.get_num_threads(),
                kv_cache_tokens=spec.cache_tokens + _SLACK_TOKENS,
                max_running=max_running,
            ),
        )
        parts = assemble_native(spec.folder, config, {}, metrics=Metrics(), deliver=self._deliver, on_error=self._fail)
        self._engine, self._runner, self._room = parts.engine, parts.runner, parts.scheduler.room

    def generate(self, prompts: Sequence[tuple[int, ...]], num_tokens: int) -> Timing:
        """Decode all prompts together, greedily, to exactly ``num_tokens`` tokens each; no prefix is shared."""
        self._arrived, self._first_s = 0, 0.0
        sampling = SamplingParams(temperature=0.0, max_tokens=num_tokens, ignore_eos=True)
        started_s = time.perf_counter()
        for prompt in prompts:
            key = f"{next(self._keys)}/1"
            self._engine.add(GenerationRequest(key, prompt, sampling, 0, _PLAIN, tenant_salt=key))
        while self._engine.has_work:
            self._engine.step()
        seconds = time.perf_counter() - started_s
        if self._arrived != num_tokens * len(prompts):
            raise EngineFailedError(f"{self._arrived} tokens arrived of {num_tokens * len(prompts)}")
        return Timing(seconds, self._first_s - started_s, self._arrived)

    def pass_times(self, sizes: Sequence[int], context: int) -> list[float]:
        """Seconds of one target pass over ``size`` tokens of one sequence behind ``context``, all logits wanted."""
        self._room.prefixes.clear()  # answers before left their prompts there
        table = PageTable(self._runner.pool, context + max(sizes))
        table.extend_to(context)
        vocab = self._runner.vocab_size
        self._runner.forward([ForwardRow([index % vocab for index in range(context)], 0, table, 0)])
        times = []
        for size in sizes:
            table.extend_to(context + size)
            started_s = time.perf_counter()
            self._runner.forward([ForwardRow([index % vocab for index in range(size)], context, table, size)])
            times.append(time.perf_counter() - started_s)
            table.truncate(context)
        table.free()
        return times

    def _deliver(self, chunks: list[GenerationChunk]) -> None:
        self._arrived += sum(len(chunk.token_ids) for chunk in chunks)
        if self._arrived:
            self._first_s = self._first_s or time.perf_counter()

    def _fail(self, keys: list[str], error: PacelineError) -> None:
        raise EngineFailedError(f"{', '.join(keys)}: {error}")


class StockCandidate:
    """`model.generate()` of Transformers with one of its attention and cache implementations."""

    def __init__(self, spec: ModelSpec, kind: str) -> None:
        attention = "eager" if kind == "eager" else "sdpa"
        self._model = load_stock(spec, attention)
        self._options: dict[str, Any] = {"cache_implementation": "static"} if kind == "static" else {}

    @torch.inference_mode()
    def generate(self, prompts: Sequence[tuple[int, ...]], num_tokens: int) -> Timing:
        """Greedy, exactly ``num_tokens`` tokens, one prompt."""
        (prompt,) = prompts
        token_ids = torch.tensor([prompt])
        started_s = time.perf_counter()
        output = self._model.generate(  # type: ignore[operator]  # of a mixin
            token_ids,
            attention_mask=torch.ones_like(token_ids),
            do_sample=False,
            min_new_tokens=num_tokens,
            max_new_tokens=num_tokens,
            pad_token_id=0,
            **self._options,
        )
        seconds = time.perf_counter() - started_s
        return Timing(seconds, 0.0, int(output.shape[1]) - len(prompt))
