"""A drafter from outside serves: inside the target's process, and behind a real gRPC link."""

import asyncio
from pathlib import Path

import pytest

from engine_harness import Harness
from guide_drafter import NAME, guide_package
from linked_engine import UnhurriedRunner
from paceline.bench.engine_endpoint import EngineEndpoint
from paceline.config.schema import DeploymentConfig, DrafterConfig, EngineConfig, ModelConfig, Tunables
from paceline.core.generation import GenerationRequest
from paceline.core.plans import Plan, Route
from paceline.core.sampling_params import SamplingParams
from paceline.drafting.registry import build_drafter
from paceline.engine.waiting import Action, Move, Snapshot
from peers import loop_thread, remote
from tiny_models import save_tiny_model
from tiny_tokenizers import byte_level
from toy_target import hashed_law

PROMPT = (5, 6, 7, 5, 6, 7)
LAW = hashed_law(11, memory=1, scale=3.0)  # repeats itself at temperature 0


def patient(snapshot: Snapshot) -> Move:
    """Wait for every draft that is under way."""
    return Move(Action.WAIT, tuple(range(len(snapshot.outstanding))), 1.0, longest_s=10.0)


@pytest.fixture
def config(tmp_path: Path) -> DeploymentConfig:
    folder = save_tiny_model(tmp_path / "target", vocab_size=320)
    byte_level().save_pretrained(str(folder))
    return DeploymentConfig(
        model=ModelConfig(source=str(folder), name="tiny"),
        engine=EngineConfig(threads=1, kv_cache_tokens=2048),
        drafters={"mine": DrafterConfig(method=NAME, place="in_process", options={"reach": 6})},
        tunables=Tunables(draft_adaptive=False),
    )


async def _answers(endpoint: EngineEndpoint, temperature: float) -> list[tuple[int, ...]]:
    answers = []
    for plan in (Plan(Route.PLAIN, "t"), Plan(Route.SPECULATIVE, "t", "mine", 5)):
        sampling = SamplingParams(temperature=temperature, max_tokens=48, ignore_eos=True)
        request = GenerationRequest(f"{plan.route.value}-{temperature}/1", PROMPT, sampling, 3, plan)
        chunks = [chunk async for batch in endpoint.backend.generate(request) for chunk in batch]
        answers.append(tuple(token_id for chunk in chunks for token_id in chunk.token_ids))
    return answers


def test_it_serves_inside_the_target(tmp_path: Path, config: DeploymentConfig) -> None:
    """Named in the configuration and nowhere else; its group is live, and answers are those of plain decoding."""
    with guide_package(tmp_path):
        endpoint = EngineEndpoint.start(config)
        try:
            (group,) = endpoint.backend.snapshot().drafter_groups
            answers = [asyncio.run(_answers(endpoint, temperature)) for temperature in (0.0, 1.0)]
        finally:
            asyncio.run(endpoint.close())

    assert (group.name, group.method, group.live) == ("mine", "last-seen", True)
    assert all(plain == drafted and len(plain) == 48 for plain, drafted in answers)


def test_it_serves_behind_a_link(tmp_path: Path) -> None:
    """Over gRPC: drafts are accepted, and answers are those of plain decoding."""
    with guide_package(tmp_path), loop_thread() as thread:
        built = build_drafter("g", DrafterConfig(method=NAME, options={"reach": 6}))
        with remote(thread, built.drafter, built.facts) as link:
            harness = Harness(UnhurriedRunner(LAW, 11), {"g": link}, local=False, choose=patient)
            for temperature in (0.0, 1.0):
                for drafter in (None, "g"):
                    harness.submit(
                        f"{temperature}/{drafter}", (1, 2, 3), drafter=drafter, temperature=temperature, max_tokens=64
                    )
            harness.run()
            method = link.method

    assert method == "last-seen"
    assert harness.counted("ACCEPTED_TOKENS", group="g") > 0
    for temperature in (0.0, 1.0):
        assert harness.ids(f"{temperature}/g") == harness.ids(f"{temperature}/None")
