"""Draft heads inside the target's process, on real (tiny, random) models: the whole way from the configuration."""

import asyncio
from pathlib import Path

import pytest
import torch
from transformers import AutoModelForCausalLM

from paceline.bench.engine_endpoint import EngineEndpoint
from paceline.config.schema import DeploymentConfig
from paceline.core.generation import GenerationChunk, GenerationRequest
from paceline.core.plans import Plan, Route
from paceline.core.sampling_params import SamplingParams
from paceline.modeling.heads.new_heads import new_eagle, new_medusa, new_mtp
from paceline.modeling.heads.save_head import save_head
from tiny_models import save_tiny_model
from tiny_tokenizers import byte_level

PROMPT = (5, 6, 7, 5, 6, 7)
METHODS = ("eagle", "mtp", "medusa")


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A target, and heads that begin as its own last layer: not good, and not hopeless."""
    made = tmp_path_factory.mktemp("target")
    save_tiny_model(made, vocab_size=320)
    byte_level().save_pretrained(str(made))
    torch.manual_seed(0)
    model = AutoModelForCausalLM.from_pretrained(made)
    heads = {
        "eagle": new_eagle(model),
        "mtp": new_mtp(model, num_modules=2),
        "medusa": new_medusa(model, num_heads=3, draft_token_ids=range(0, 320, 2)),
    }
    folders = {"target": made}
    for method, head in heads.items():
        folders[method] = tmp_path_factory.mktemp(method)
        save_head(head, folders[method], dtype=torch.float32)
    return folders


def start(folders: dict[str, Path], verifier: str, top_k: int, **engine: object) -> EngineEndpoint:
    return EngineEndpoint.start(
        DeploymentConfig.model_validate(
            {
                "model": {"source": str(folders["target"]), "name": "tiny"},
                "verifier": verifier,
                "engine": {"threads": 1, "kv_cache_tokens": 4096, "poison_freed_pages": True, **engine},
                "drafters": {
                    method: {"method": method, "place": "in_process", "model": str(folders[method])}
                    for method in METHODS
                },
                "tunables": {"draft_adaptive": False, "draft_top_k": top_k, "max_draft_tokens": 6},
            }
        )
    )


async def answer(endpoint: EngineEndpoint, plan: Plan, seed: int, temperature: float) -> list[GenerationChunk]:
    sampling = SamplingParams(temperature=temperature, max_tokens=30, ignore_eos=True)
    key = f"{plan.route.value}-{plan.drafter}-{seed}-{temperature}/1"
    stream = endpoint.backend.generate(GenerationRequest(key, PROMPT, sampling, seed, plan))
    return [chunk async for batch in stream for chunk in batch]


async def together(endpoint: EngineEndpoint, plan: Plan) -> list[list[GenerationChunk]]:
    """Answers of three seeds at three temperatures, decoded in one batch."""
    jobs = [answer(endpoint, plan, seed, temperature) for seed in range(3) for temperature in (0.0, 0.4, 1.0)]
    return await asyncio.gather(*jobs)


def ids(answers: list[list[GenerationChunk]]) -> list[tuple[int, ...]]:
    return [tuple(token_id for chunk in chunks for token_id in chunk.token_ids) for chunks in answers]


@pytest.mark.parametrize("page_size", [1, 16])
@pytest.mark.parametrize("top_k", [1, 3])
def test_a_seed_gives_the_text_of_plain_decoding(folders: dict[str, Path], top_k: int, page_size: int) -> None:
    """Under `coupled`, chains and trees, many answers at once; drafts are made, and no page is lost."""
    endpoint = start(folders, "coupled", top_k, page_size=page_size)
    try:
        plain = ids(asyncio.run(together(endpoint, Plan(Route.PLAIN, "t"))))
        for method in METHODS:
            drafted = asyncio.run(together(endpoint, Plan(Route.SPECULATIVE, "t", method, 6)))
            assert ids(drafted) == plain
            stats = [chunks[-1].stats for chunks in drafted]
            assert sum(one.drafted for one in stats if one) > 100
            assert sum(one.accepted for one in stats if one) > 0
    finally:
        asyncio.run(endpoint.close())
    endpoint.backend.parts.engine.check_integrity()  # answers are delivered before their pages go back


@pytest.mark.parametrize("verifier", ["rejection", "block"])
def test_drawn_drafts_are_verified(folders: dict[str, Path], verifier: str) -> None:
    """Laws travel from the heads to the other verifiers; greedy answers stay those of plain decoding."""
    endpoint = start(folders, verifier, 1)
    try:
        plain = ids(asyncio.run(together(endpoint, Plan(Route.PLAIN, "t"))))[::3]
        for method in METHODS:
            drafted = asyncio.run(together(endpoint, Plan(Route.SPECULATIVE, "t", method, 6)))
            assert ids(drafted)[::3] == plain
            assert sum(chunks[-1].stats.accepted for chunks in drafted if chunks[-1].stats) > 0
    finally:
        asyncio.run(endpoint.close())
