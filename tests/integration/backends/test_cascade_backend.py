"""A cascade inside the target's process, on real (tiny, random) models: n-gram, half of a model, the target."""

import asyncio

import pytest

from paceline.bench.engine_endpoint import EngineEndpoint
from paceline.config.schema import DeploymentConfig
from paceline.core.generation import GenerationChunk, GenerationRequest
from paceline.core.plans import Plan, Route
from paceline.core.sampling_params import SamplingParams
from paceline.telemetry import catalogue
from tiny_models import save_tiny_model
from tiny_tokenizers import byte_level

PROMPT = (5, 6, 7, 5, 6, 7)
DRAFTED = Plan(Route.SPECULATIVE, "t", "levels", 6)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> str:
    made = save_tiny_model(tmp_path_factory.mktemp("target"), vocab_size=320)
    byte_level().save_pretrained(str(made))
    return str(made)


def start(folder: str, verifier: str, top_k: int) -> EngineEndpoint:
    levels = [{"method": "ngram", "min_match_tokens": 1}, {"method": "draft_model", "model": folder, "num_layers": 1}]
    return EngineEndpoint.start(
        DeploymentConfig.model_validate(
            {
                "model": {"source": folder, "name": "tiny"},
                "verifier": verifier,
                "engine": {"threads": 1, "kv_cache_tokens": 4096},
                "drafters": {"levels": {"method": "cascade", "place": "in_process", "levels": levels}},
                "tunables": {"draft_adaptive": False, "draft_top_k": top_k, "max_draft_tokens": 6},
            }
        )
    )


async def answer(endpoint: EngineEndpoint, plan: Plan, seed: int, temperature: float) -> list[GenerationChunk]:
    sampling = SamplingParams(temperature=temperature, max_tokens=40, ignore_eos=True)
    key = f"{plan.route.value}-{seed}-{temperature}/1"
    stream = endpoint.backend.generate(GenerationRequest(key, PROMPT, sampling, seed, plan))
    return [chunk async for batch in stream for chunk in batch]


async def together(endpoint: EngineEndpoint, plan: Plan) -> list[list[GenerationChunk]]:
    """Answers of four seeds at three temperatures, decoded in one batch."""
    jobs = [answer(endpoint, plan, seed, temperature) for seed in range(4) for temperature in (0.0, 0.4, 1.0)]
    return await asyncio.gather(*jobs)


def ids(answers: list[list[GenerationChunk]]) -> list[tuple[int, ...]]:
    return [tuple(token_id for chunk in chunks for token_id in chunk.token_ids) for chunks in answers]


@pytest.mark.parametrize("top_k", [1, 3])
def test_a_seed_gives_the_text_of_plain_decoding(folder: str, top_k: int) -> None:
    """Under `coupled`, chains and trees, many answers at once; drafts are accepted, levels are counted."""
    endpoint = start(folder, "coupled", top_k)
    try:
        plain = asyncio.run(together(endpoint, Plan(Route.PLAIN, "t")))
        drafted = asyncio.run(together(endpoint, DRAFTED))
        counted = [
            endpoint.backend.metrics.value(counter, group="levels", level="1")
            for counter in (
                catalogue.CASCADE_PASSES,
                catalogue.CASCADE_KEPT_TOKENS,
                catalogue.CASCADE_REJECTED_TOKENS,
                catalogue.CASCADE_CORRECTIONS,
            )
        ]
    finally:
        asyncio.run(endpoint.close())
    endpoint.backend.parts.engine.check_integrity()  # answers are delivered before their pages go back

    assert ids(plain) == ids(drafted)
    assert sum(chunks[-1].stats.accepted for chunks in drafted if chunks[-1].stats) > 10
    assert min(counted) > 0


@pytest.mark.parametrize("verifier", ["rejection", "block"])
def test_it_serves_where_drafts_are_drawn(folder: str, verifier: str) -> None:
    """Laws travel with the drafts, none is refused, and some are accepted."""
    endpoint = start(folder, verifier, 1)
    try:
        drafted = asyncio.run(together(endpoint, DRAFTED))
        metrics = endpoint.backend.metrics.render()
    finally:
        asyncio.run(endpoint.close())

    assert all(len(answer_ids) == 40 for answer_ids in ids(drafted))
    assert sum(chunks[-1].stats.accepted for chunks in drafted if chunks[-1].stats) > 10
    assert 'reason="invalid"' not in metrics
