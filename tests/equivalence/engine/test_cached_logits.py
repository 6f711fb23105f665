"""On the real model, what comes out of the prefix cache, or out of pre-emption, has the same bits."""

from collections import defaultdict

import pytest

from paceline.backends.native import assemble_engine
from paceline.config.schema import DeploymentConfig, DrafterConfig, EngineConfig, ModelConfig
from paceline.core.generation import GenerationRequest, TokenLogprob
from paceline.core.plans import Plan, Route
from paceline.core.sampling_params import SamplingParams
from paceline.drafting.ngram import NgramDrafter
from paceline.engine import kv_room
from paceline.modeling.loader import load_model
from paceline.modeling.resolve import resolve_model
from paceline.telemetry import catalogue
from paceline.telemetry.metrics import Metrics
from paceline.text.tokenizer import TextTokenizer

pytestmark = pytest.mark.model

MODEL = "smollm2-135m"
TEXT = (
    "The keeper of the lighthouse wrote a line into the book every evening: the wind, the ships, the light. "
    "On the first evening of spring he wrote: wind from the west, three ships, the light burns. "
    "On the second evening he wrote: wind from the"
)
CUTS = (58, 40, 25)  # tokens of the text that a prompt takes
Answers = dict[str, list[TokenLogprob]]


class Lab:
    """Answers the same three prompts on engines of several kinds around one loaded model."""

    def __init__(self) -> None:
        folder = resolve_model(MODEL)
        self.loaded = load_model(folder, dtype="bfloat16", device="cpu")
        self.tokenizer = TextTokenizer.load(folder)
        self.metrics = Metrics(strict=True)

    def answers(self, *, together: bool, drafter: str | None = None, **engine) -> Answers:
        """Logprobs of every answer, the five best at each position: equal only if the logits are."""
        config = DeploymentConfig(
            model=ModelConfig(source=MODEL, dtype="bfloat16"),
            engine=EngineConfig(**{"poison_freed_pages": True, "threads": 1, **engine}),
            drafters={"ngram": DrafterConfig(method="ngram", place="in_process")},
        )
        found: defaultdict[str, list[TokenLogprob]] = defaultdict(list)

        def deliver(chunks):
            for chunk in chunks:
                found[chunk.key] += chunk.logprobs

        def raised(keys, error):
            raise error

        self.metrics = Metrics(strict=True)
        engine = assemble_engine(
            self.loaded,
            self.tokenizer,
            config,
            {"ngram": NgramDrafter(min_match=1)},
            metrics=self.metrics,
            deliver=deliver,
            on_error=raised,
        ).engine
        ids = self.tokenizer.encode(TEXT)
        plan = Plan(Route.SPECULATIVE, "test", drafter, 5) if drafter else Plan(Route.PLAIN, "test")
        params = SamplingParams(temperature=1.0, max_tokens=20, ignore_eos=True, logprobs=5)
        for number, cut in enumerate(CUTS):
            engine.add(GenerationRequest(f"r{number}/1", tuple(ids[:cut]), params, 7, plan))
            while engine.has_work and not together:
                engine.step()
        while engine.has_work:
            engine.step()
        engine.check_integrity()
        return dict(found)


@pytest.fixture(scope="module")
def lab() -> Lab:
    return Lab()


@pytest.fixture(scope="module")
def expected(lab) -> Answers:
    """Each answer by itself, plain, nothing cached, prompts in one piece."""
    return lab.answers(together=False, kv_cache_tokens=512, prefix_cache=False)


@pytest.mark.parametrize("page_size", [1, 16])
def test_a_prefix_hit_changes_no_bit_of_a_logprob(page_size, lab, expected):
    """Prompts that begin alike, one after the other, in chunks, with drafts."""
    options = {"kv_cache_tokens": 512, "page_size": page_size, "step_tokens": 24}

    assert lab.answers(together=False, drafter="ngram", **options) == expected
    assert lab.metrics.value(catalogue.PREFIX_HIT_TOKENS) >= 64 - 2 * page_size


@pytest.mark.parametrize("page_size", [1, 16])
@pytest.mark.parametrize("prefix_cache", [True, False])
def test_pre_emption_changes_no_bit_of_a_logprob(page_size, prefix_cache, lab, expected, monkeypatch):
    """Three at a time in a pool for less than that, nobody keeps room to grow: the youngest is computed again."""
    monkeypatch.setattr(kv_room, "HEADROOM_TOKENS", 0)
    room = 80 if prefix_cache else 144  # all share one copy of the prefix, or have their own

    answers = lab.answers(
        together=True, drafter="ngram", kv_cache_tokens=room, page_size=page_size, prefix_cache=prefix_cache
    )
    assert answers == expected
    assert lab.metrics.value(catalogue.PREEMPTIONS) > 0
