"""Whether an engine keeps memory that it should have given back: resident size over many requests."""

import asyncio
import gc
import random
from collections.abc import Callable, Mapping
from contextlib import aclosing
from dataclasses import dataclass
from typing import Any, cast

import psutil

from paceline.backends.native import NativeBackend
from paceline.bench.provenance import collect_provenance
from paceline.bench.report import Result, Table
from paceline.core.generation import GenerationRequest
from paceline.core.plans import Plan, Route
from paceline.core.sampling_params import SamplingParams

Say = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class MemorySetup:
    """Requests of mixed lengths and kinds, some of them abandoned half way."""

    requests: int = 10_000
    base_after: int = 500  # requests until caches and pools have their size
    every: int = 500
    concurrency: int = 16
    prompt_tokens: int = 48  # at most
    max_tokens: int = 24  # at most
    abandoned: float = 0.1  # share of requests that are left in mid-answer
    seed: int = 0


async def run_memory_bench(
    backend: NativeBackend, setup: MemorySetup, *, config: Mapping[str, Any], say: Say = lambda _: None
) -> Result:
    """Send all requests and note the resident size on the way."""
    provenance = collect_provenance(config=config, seed=setup.seed)
    draw = random.Random(setup.seed)
    sizes: dict[int, int] = {}
    for start in range(0, setup.requests, setup.every):
        stop = min(start + setup.every, setup.requests)
        await _send(backend, setup, range(start, stop), draw)
        gc.collect()
        sizes[stop] = psutil.Process().memory_info().rss
        say(f"{stop} requests: {sizes[stop] / 2**20:.1f} MiB")
    backend.check_health()
    base_at = min((count for count in sizes if count >= setup.base_after), default=setup.requests)
    base = sizes[base_at]
    growth = sizes[setup.requests] / base - 1
    rows = [[str(count), f"{size / 2**20:.1f}", f"{size / base - 1:+.1%}"] for count, size in sizes.items()]
    notes = [f"Growth from request {base_at} to {setup.requests}: {growth:+.1%}."]
    table = Table("Resident memory", ["requests", "MiB", "against the base"], rows, notes)
    data = {"rss_bytes": {str(count): size for count, size in sizes.items()}, "growth": growth}
    return Result("memory", provenance, [table], data)


async def _send(backend: NativeBackend, setup: MemorySetup, numbers: range, draw: random.Random) -> None:
    """Send requests, ``concurrency`` at a time, each with a prompt of its own."""
    waiting = iter(numbers)

    async def work() -> None:
        for number in waiting:
            await _ask(backend, _request(backend, setup, number, draw), leave=draw.random() < setup.abandoned)

    await asyncio.gather(*(work() for _ in range(setup.concurrency)))


async def _ask(backend: NativeBackend, request: GenerationRequest, *, leave: bool) -> None:
    stream = cast("Any", backend.generate(request))
    async with aclosing(stream) as batches:
        async for _ in batches:
            if leave:
                return


def _request(backend: NativeBackend, setup: MemorySetup, number: int, draw: random.Random) -> GenerationRequest:
    groups = [group.name for group in backend.snapshot().drafter_groups]
    speculate = bool(groups) and draw.random() < 0.5
    plan = Plan(Route.SPECULATIVE, "soak", groups[0], 4) if speculate else Plan(Route.PLAIN, "soak")
    vocab = backend.identity.vocabulary.size
    prompt = tuple(draw.randrange(vocab) for _ in range(draw.randint(1, setup.prompt_tokens)))
    sampling = SamplingParams(
        temperature=draw.choice((0.0, 1.0)), max_tokens=draw.randint(1, setup.max_tokens), ignore_eos=True
    )
    return GenerationRequest(f"soak-{number}/1", prompt, sampling, number, plan)
