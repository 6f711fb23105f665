"""On the real model, a seed gives the same token ids whatever drafts, and whoever shares the pass."""

import asyncio
from collections.abc import Iterator
from contextlib import ExitStack
from typing import NamedTuple

import pytest

from audit import audit
from paceline.backends.native import NativeBackend
from paceline.bench.prompts import load_prompts
from paceline.config.schema import DeploymentConfig, DrafterConfig, Tunables
from paceline.core.generation import ChoiceStats, GenerationRequest
from paceline.core.plans import Plan, Route
from paceline.core.sampling_params import SamplingParams
from paceline.drafting.drafter import Drafter
from paceline.drafting.matching import TargetFacts
from paceline.drafting.registry import build_drafter, build_matching_drafter
from paceline.modeling.resolve import resolve_model
from paceline.text.chat import ChatMessage
from paceline.text.tokenizer import TextTokenizer
from peers import loop_thread, remote

pytestmark = pytest.mark.model

MODEL = "smollm2-135m"
MAX_TOKENS = 64
TEMPERATURES = (0.0, 1.0)
GROUPS = {
    "ngram": DrafterConfig(method="ngram", place="in_process", min_match_tokens=1),
    "small": DrafterConfig(method="draft_model", place="in_process", model=MODEL, num_layers=4),
    "remote-ngram": DrafterConfig(method="ngram", min_match_tokens=1),
    "remote-small": DrafterConfig(method="draft_model", model=MODEL, num_layers=4),
    "self": DrafterConfig(method="draft_model", place="in_process", model=MODEL),
}
METHODS = (None, "ngram", "small", "remote-ngram", "remote-small")


def prompts(every: int) -> list[str]:
    """Every n-th prompt of the project's own list."""
    return [prompt.prompt for prompt in load_prompts()][::every]


class Answer(NamedTuple):
    ids: tuple[int, ...]
    stats: ChoiceStats


class Platform:
    """A target with drafters in its process and behind links."""

    def __init__(self, backend: NativeBackend, tokenizer: TextTokenizer) -> None:
        self.backend = backend
        self.tokenizer = tokenizer
        self.audited: list[str] = []
        self.compared = 0
        self._count = 0

    async def answer(self, prompt: str, drafter: str | None, *, seed: int, **sampling) -> Answer:
        self._count += 1
        plan = Plan(Route.SPECULATIVE, "test", drafter, 3) if drafter else Plan(Route.PLAIN, "test")
        ids: list[int] = []
        stats = None
        params = SamplingParams(**{"max_tokens": MAX_TOKENS, **sampling})
        request = GenerationRequest(f"r{self._count}/1", self.prompt_ids(prompt), params, seed, plan)
        async for chunks in self.backend.generate(request):
            for chunk in chunks:
                ids += chunk.token_ids
                stats = chunk.stats or stats
        return Answer(tuple(ids), stats)

    def prompt_ids(self, prompt: str) -> tuple[int, ...]:
        return self.tokenizer.render_chat([ChatMessage("user", prompt)])

    def assert_same(self, prompt: str, temperature: float, *, seed: int, one: Answer, other: Answer, what: str) -> None:
        """Equal ids, or a numeric tie that the audit can show."""
        self.compared += 1
        params = SamplingParams(temperature=temperature)
        runner = self.backend.parts.runner
        found = audit(runner, self.prompt_ids(prompt), params, seed=seed, one=one.ids, other=other.ids)
        if found is not None:
            assert found.is_tie, f"{what}, temperature {temperature}, {prompt!r}: {found}"
            self.audited.append(f"{what}: {found}")


@pytest.fixture(scope="module")
def platform() -> Iterator[Platform]:
    folder = resolve_model(MODEL)
    tokenizer = TextTokenizer.load(folder)
    facts = TargetFacts(tokenizer.vocabulary, 8192)
    tunables = Tunables(draft_wait_share=4)
    config = DeploymentConfig(drafters=GROUPS, tunables=tunables)
    with loop_thread() as thread, ExitStack() as links:
        drafters: dict[str, Drafter] = {}
        for name, group in GROUPS.items():
            if group.place == "in_process":
                drafters[name] = build_matching_drafter(name, group, facts)
            else:
                drafters[name] = links.enter_context(remote(thread, *build_drafter(name, group), hello=facts))
        backend = NativeBackend.start(folder, config=config, drafters=drafters)
        yield Platform(backend, tokenizer)
        asyncio.run(backend.close())


async def check_alone(platform: Platform, chosen: list[str]) -> dict[tuple[int, float], Answer]:
    """Each prompt by itself with every method; returns the plain answers."""
    plain: dict[tuple[int, float], Answer] = {}
    counts = {method: [0, 0] for method in METHODS if method}
    for temperature in TEMPERATURES:
        for seed, prompt in enumerate(chosen):
            plain[seed, temperature] = await platform.answer(prompt, None, seed=seed, temperature=temperature)
            for method, count in counts.items():
                answer = await platform.answer(prompt, method, seed=seed, temperature=temperature)
                platform.assert_same(
                    prompt, temperature, seed=seed, one=plain[seed, temperature], other=answer, what=method
                )
                count[0] += answer.stats.accepted
                count[1] += answer.stats.tested - answer.stats.accepted
    for method, (accepted, rejected) in counts.items():
        assert accepted > 0, f"{method}: no draft was accepted, so nothing was tested"
        assert rejected > 0, f"{method}: no draft was rejected, so nothing was tested"
    return plain


async def check_mixed(platform: Platform, chosen: list[str], plain: dict[tuple[int, float], Answer]) -> None:
    """Every prompt with every method, 16 requests of all kinds at a time."""
    jobs = [
        (seed, temperature, METHODS[(seed + shift) % len(METHODS)])
        for shift in range(len(METHODS))
        for seed in range(len(chosen))
        for temperature in TEMPERATURES
    ]
    gate = asyncio.Semaphore(16)

    async def run(seed: int, temperature: float, method: str | None) -> Answer:
        async with gate:
            return await platform.answer(chosen[seed], method, seed=seed, temperature=temperature)

    answers = await asyncio.gather(*(run(*job) for job in jobs))
    # Compared when the engine is idle: an audit runs passes of its own on the engine's pages.
    for (seed, temperature, method), answer in zip(jobs, answers, strict=True):
        reference = plain[seed, temperature]
        platform.assert_same(
            chosen[seed], temperature, seed=seed, one=reference, other=answer, what=f"{method} beside others"
        )


async def check_invariance(platform: Platform, chosen: list[str]) -> None:
    platform.compared, platform.audited = 0, []
    plain = await check_alone(platform, chosen)
    await check_mixed(platform, chosen, plain)
    print(f"\n{platform.compared} comparisons, numeric ties: {platform.audited}")  # noqa: T201
    assert len(platform.audited) <= 0.02 * platform.compared


async def test_the_same_seed_gives_the_same_ids_on_every_route(platform):
    """Every fourth prompt: off = ngram = draft model = remote of each, alone and beside 15 others."""
    await check_invariance(platform, prompts(every=4))


@pytest.mark.full
async def test_the_same_seed_gives_the_same_ids_on_every_route_for_all_prompts(platform):
    """The long form of the same claim."""
    await check_invariance(platform, prompts(every=1))


async def test_a_drafter_that_is_the_target_is_always_right(platform):
    """All drafts of a self-draft are accepted, greedy and sampled."""
    for seed, prompt in enumerate(prompts(every=12)):
        for temperature in TEMPERATURES:
            plain = await platform.answer(prompt, None, seed=seed, temperature=temperature, max_tokens=32)
            drafted = await platform.answer(prompt, "self", seed=seed, temperature=temperature, max_tokens=32)
            platform.assert_same(prompt, temperature, seed=seed, one=plain, other=drafted, what="self")

            assert drafted.stats.tested > 0
            assert drafted.stats.accepted == drafted.stats.tested
