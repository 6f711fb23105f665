"""On the real model in bfloat16, a seed gives the same token ids whatever drafts, and whoever shares the pass."""

import asyncio
import random
from collections import defaultdict
from collections.abc import Iterator
from contextlib import ExitStack
from typing import NamedTuple

import pytest

from audit import audit
from paceline.backends.native import NativeBackend
from paceline.bench.prompts import load_prompts
from paceline.config.schema import DeploymentConfig, DrafterConfig, EngineConfig, ModelConfig, Tunables
from paceline.core.generation import ChoiceStart, ChoiceStats, GenerationChunk, GenerationRequest
from paceline.core.model_identity import FeatureFacts
from paceline.core.plans import Plan, Route
from paceline.core.sampling_params import SamplingParams
from paceline.drafting.drafter import Drafter
from paceline.drafting.host import DrafterHost
from paceline.drafting.matching import TargetFacts
from paceline.drafting.registry import BuiltDrafter, build_drafter
from paceline.engine import kv_room
from paceline.modeling.resolve import resolve_model
from paceline.modeling.runner import ModelRunner
from paceline.telemetry import catalogue
from paceline.text.chat import ChatMessage
from paceline.text.tokenizer import TextTokenizer
from peers import loop_thread, remote
from roulette import RouletteDrafter, Shaped

pytestmark = pytest.mark.model

MODEL = "smollm2-135m"
TEMPERATURES = (0.0, 1.0)
NODES = 6
TOP_K = 3  # of what is asked for; chains ask for less
LEAST_EQUAL = 0.95
NGRAM = {"method": "ngram", "min_match_tokens": 1}
SMALL = {"method": "draft_model", "model": f"{MODEL}/draft_model", "dtype": "bfloat16"}
HEADS = {name: {"method": name, "model": f"{MODEL}/{name}"} for name in ("medusa", "eagle", "mtp")}
CASCADE = {"method": "cascade", "levels": [NGRAM, SMALL]}
GROUPS = {
    "ngram": DrafterConfig(**NGRAM, place="in_process"),
    "small": DrafterConfig(**SMALL, place="in_process"),
    "tree": DrafterConfig(**SMALL, place="in_process"),
    "roulette": DrafterConfig(**NGRAM, place="in_process"),  # all of the above, another one at every round
    "remote-ngram": DrafterConfig(**NGRAM),
    "remote-tree": DrafterConfig(**SMALL),
    "cascade": DrafterConfig(**CASCADE, place="in_process"),
    "remote-cascade": DrafterConfig(**CASCADE),
    **{name: DrafterConfig(**head, place="in_process") for name, head in HEADS.items()},  # trees
    **{f"remote-{name}": DrafterConfig(**head) for name, head in HEADS.items()},  # chains
}
METHODS = (None, *GROUPS)
SELF = DrafterConfig(method="draft_model", model=MODEL, dtype="bfloat16", place="in_process")


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
        plan = Plan(Route.SPECULATIVE, "test", drafter, NODES) if drafter else Plan(Route.PLAIN, "test")
        ids: list[int] = []
        stats = None
        request = GenerationRequest(
            f"r{self._count}/1", self.prompt_ids(prompt), SamplingParams(**sampling), seed, plan
        )
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
        if one.ids == other.ids:
            return
        runner = ModelRunner(self.backend.parts.runner.loaded, num_pages=4096, page_size=1)
        params = SamplingParams(temperature=temperature)
        found = audit(runner, self.prompt_ids(prompt), params, seed=seed, one=one.ids, other=other.ids)
        assert found.is_tie, f"{what}, temperature {temperature}, {prompt!r}: {found}"
        self.audited.append(f"{what}: {found}")


@pytest.fixture(scope="module")
def platform() -> Iterator[Platform]:
    """Prompts in chunks, freed pages poisoned, and too few pages for 16 long answers: some are pre-empted."""
    folder = resolve_model(MODEL)
    tokenizer = TextTokenizer.load(folder)
    facts = TargetFacts(tokenizer.vocabulary, 8192, (FeatureFacts("last", 576),))
    host = DrafterHost(target_folder=folder, target_dtype="bfloat16")
    config = DeploymentConfig(
        model=ModelConfig(source=MODEL, dtype="bfloat16"),
        engine=EngineConfig(kv_cache_tokens=800, step_tokens=96, poison_freed_pages=True),
        drafters={**GROUPS, "self": SELF},
        tunables=Tunables(max_draft_tokens=NODES, draft_top_k=TOP_K, draft_adaptive=False),
    )

    def built(name: str) -> BuiltDrafter:
        return build_drafter(name, GROUPS.get(name, SELF), host)

    any_of = {"ngram": built("ngram").drafter, "small": built("small").drafter}
    with loop_thread() as thread, ExitStack() as links, pytest.MonkeyPatch.context() as patch:
        patch.setattr(kv_room, "HEADROOM_TOKENS", 0)
        drafters: dict[str, Drafter] = {
            "ngram": Shaped(built("ngram").drafter, 1),
            "small": Shaped(built("small").drafter, 1),
            "tree": built("tree").drafter,
            "self": built("self").drafter,
            "cascade": built("cascade").drafter,
            "roulette": RouletteDrafter(any_of, random.Random(1)),
        }
        for name in GROUPS.keys() - drafters.keys() - HEADS.keys():
            drafter, drafter_facts = built(name)
            if name.removeprefix("remote-") in HEADS:
                drafter = Shaped(drafter, 1)
            drafters[name] = links.enter_context(remote(thread, drafter, drafter_facts, hello=facts))
        backend = NativeBackend.start(folder, config=config, drafters=drafters)
        yield Platform(backend, tokenizer)
        backend.parts.engine.check_integrity()
        asyncio.run(backend.close())


async def check_invariance(platform: Platform, chosen: list[str], *, alone: int, max_tokens: int) -> None:
    """Plain by itself against all methods: the first ``alone`` prompts by themselves, all of them 16 at a time."""
    platform.compared, platform.audited = 0, []
    plain = {
        (seed, temperature): await platform.answer(
            prompt, None, seed=seed, temperature=temperature, max_tokens=max_tokens
        )
        for seed, prompt in enumerate(chosen)
        for temperature in TEMPERATURES
    }
    gate = asyncio.Semaphore(1)
    counts: defaultdict[str, list[int]] = defaultdict(lambda: [0, 0])

    async def compare(seed: int, temperature: float, method: str | None) -> None:
        async with gate:
            prompt = chosen[seed]
            answer = await platform.answer(prompt, method, seed=seed, temperature=temperature, max_tokens=max_tokens)
        reference = plain[seed, temperature]
        platform.assert_same(prompt, temperature, seed=seed, one=reference, other=answer, what=method or "plain")
        counts[method or "plain"][0] += answer.stats.accepted
        counts[method or "plain"][1] += answer.stats.tested - answer.stats.accepted

    await asyncio.gather(*(compare(s, t, m) for m in METHODS[1:] for s in range(alone) for t in TEMPERATURES))
    gate = asyncio.Semaphore(16)
    # Neighbours in the list differ in method, so that every pass has rows of all kinds.
    await asyncio.gather(*(compare(s, t, m) for s in range(len(chosen)) for t in TEMPERATURES for m in METHODS))
    print(f"\n{platform.compared} comparisons, numeric ties: {platform.audited}, accepted and rejected: {dict(counts)}")  # noqa: T201
    for method in METHODS[1:]:
        assert all(counts[method]), f"{method}: {counts[method]} drafts accepted and rejected, so nothing was tested"
    assert len(platform.audited) <= (1 - LEAST_EQUAL) * platform.compared


async def test_the_same_seed_gives_the_same_ids_on_every_route(platform):
    """Off = chain = tree = another drafter at every round, in the process and behind a link, alone and in company."""
    await check_invariance(platform, prompts(every=9), alone=1, max_tokens=40)
    metrics = platform.backend.metrics

    assert metrics.value(catalogue.PREEMPTIONS) > 0
    assert metrics.value(catalogue.PREFIX_HIT_TOKENS) > 0


@pytest.mark.full
@pytest.mark.timeout(3600)
async def test_the_same_seed_gives_the_same_ids_on_every_route_for_all_prompts(platform):
    """The long form of the same claim."""
    await check_invariance(platform, prompts(every=1), alone=8, max_tokens=64)


async def test_a_drafter_that_is_the_target_is_always_right(platform):
    """The right token is a child of every node on the right path, greedy and sampled."""
    for seed, prompt in enumerate(prompts(every=20)):
        for temperature in TEMPERATURES:
            plain = await platform.answer(prompt, None, seed=seed, temperature=temperature, max_tokens=24)
            drafted = await platform.answer(prompt, "self", seed=seed, temperature=temperature, max_tokens=24)
            platform.assert_same(prompt, temperature, seed=seed, one=plain, other=drafted, what="self")

            assert drafted.stats.tested > 0
            assert drafted.stats.accepted == drafted.stats.tested


async def test_an_answer_goes_on_in_the_same_words_wherever_it_was_stopped(platform):
    """Both choices are stopped after every number of tokens, also inside a character, and all go on at once."""
    prompt = platform.prompt_ids("Repeat five times: \uc548\ub155 \U0001f1f0\U0001f1f7 and goodbye")
    options = SamplingParams(max_tokens=28, temperature=0.8, stop=("and good night", "goodbye to"))

    async def chunks_of(key: str, drafter: str | None, starts: tuple[ChoiceStart, ...]) -> list[GenerationChunk]:
        plan = Plan(Route.SPECULATIVE, "test", drafter, NODES) if drafter else Plan(Route.PLAIN, "test")
        request = GenerationRequest(key, prompt, options, 5, plan, num_choices=2, resumed=starts)
        return [chunk async for batch in platform.backend.generate(request) for chunk in batch]

    def joined(chunks: list[GenerationChunk]) -> tuple[tuple[int, ...], str]:
        return tuple(i for chunk in chunks for i in chunk.token_ids), "".join(chunk.text for chunk in chunks)

    whole = await chunks_of("whole/1", None, ())
    plain = [[chunk for chunk in whole if chunk.choice == choice] for choice in range(2)]
    cuts = range(max(map(len, plain)))  # plain chunks have one token each
    starts = [
        tuple(
            ChoiceStart(choice, ids, len(text))
            for choice, chunks in enumerate(plain)
            for ids, text in [joined(chunks[:cut])]
            if cut < len(chunks)
        )
        for cut in cuts
    ]
    rests = await asyncio.gather(
        *(chunks_of(f"after{cut}/2", METHODS[cut % len(METHODS)], starts[cut]) for cut in cuts)
    )
    for cut, rest in zip(cuts, rests, strict=True):
        for start in starts[cut]:
            before = plain[start.choice][:cut]
            after = [chunk for chunk in rest if chunk.choice == start.choice]
            assert joined([*before, *after]) == joined(plain[start.choice]), f"choice {start.choice} after {cut} tokens"
    assert all(len(chunks) > 12 for chunks in plain)
    assert any(not joined(chunks)[1].isascii() for chunks in plain)
