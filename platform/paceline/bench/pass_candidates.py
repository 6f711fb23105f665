"""What `bench pass` compares: the engine, Transformers' own `generate`, and nothing but the matrix products."""

import itertools
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import torch
from transformers import AutoModelForCausalLM, PreTrainedModel
from transformers.utils import logging as transformers_logging

from paceline.backends.native import assemble_native
from paceline.config.schema import DeploymentConfig, EngineConfig, ModelConfig
from paceline.core.generation import GenerationChunk, GenerationRequest
from paceline.core.plans import Plan, Route
from paceline.core.sampling_params import SamplingParams
from paceline.errors import ConfigError, EngineFailedError, PacelineError
from paceline.kvcache.page_pool import PageTable
from paceline.modeling.forward_row import ForwardRow
from paceline.telemetry.metrics import Metrics

_DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}
_PLAIN = Plan(Route.PLAIN, "a benchmark of plain decoding")
_SLACK_TOKENS = 256  # of the KV cache, beyond what a call needs

STOCK_KINDS = ("eager", "sdpa", "static")
MATMUL_ROWS = (1, 4, 16)


@dataclass(frozen=True, slots=True)
class ModelSpec:
    """The model that all candidates run."""

    folder: Path
    dtype: str
    cache_tokens: int


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

    def __init__(self, spec: ModelSpec, threads: int, max_running: int) -> None:
        self._arrived = 0
        self._first_s = 0.0
        self._keys = itertools.count()
        config = DeploymentConfig(
            model=ModelConfig.model_validate({"source": str(spec.folder), "dtype": spec.dtype}),
            engine=EngineConfig(
                threads=threads, kv_cache_tokens=spec.cache_tokens + _SLACK_TOKENS, max_running=max_running
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


class MatmulCandidate:
    """Every linear layer of the model once per pass, packed for oneDNN, on made-up activations: nothing else."""

    def __init__(self, spec: ModelSpec) -> None:
        if not hasattr(torch.ops.mkldnn, "_linear_pointwise"):
            raise ConfigError("This build of PyTorch has no packed linear layers to compare with.")
        model = load_stock(spec, "sdpa")
        self._dtype = _DTYPES[spec.dtype]
        self._layers = [
            (module.in_features, torch.ops.mkldnn._reorder_linear_weight(module.weight.detach(), None))  # noqa: SLF001
            for module in model.modules()
            if type(module) is torch.nn.Linear
        ]

    @torch.inference_mode()
    def passes(self, rows: int, count: int) -> float:
        """Seconds of ``count`` passes over ``rows`` tokens."""
        inputs = {size: torch.ones(rows, size, dtype=self._dtype) for size, _ in self._layers}
        product = torch.ops.mkldnn._linear_pointwise  # noqa: SLF001
        started_s = time.perf_counter()
        for _ in range(count):
            for size, weight in self._layers:
                product(inputs[size], weight, None, "none", [], "")
        return time.perf_counter() - started_s


def load_stock(spec: ModelSpec, attention: str) -> PreTrainedModel:
    """The model as Transformers runs it itself."""
    transformers_logging.disable_progress_bar()  # type: ignore[no-untyped-call]
    model: PreTrainedModel = AutoModelForCausalLM.from_pretrained(
        spec.folder, attn_implementation=attention, dtype=_DTYPES[spec.dtype], local_files_only=True
    )
    model.train(mode=False)
    return model


def builder(kind: str, spec: ModelSpec, *, threads: int, max_running: int) -> Callable[[], Any]:
    """Picklable builder of a candidate: "engine", "matmuls", or one of `STOCK_KINDS`."""
    if kind == "engine":
        return partial(EngineCandidate, spec, threads, max_running)
    return partial(MatmulCandidate, spec) if kind == "matmuls" else partial(StockCandidate, spec, kind)
