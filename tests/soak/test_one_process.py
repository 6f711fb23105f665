"""The soak's clients and judge over both doors of a gateway in this process, with the engine behind it and no Ray."""

import asyncio
import contextlib
import importlib
import random
from collections import Counter
from pathlib import Path

import pytest

import grpc_door
import http_door
from paceline.backends.native import NativeBackend
from paceline.config.schema import Tunables
from paceline.drafting.matching import TargetFacts
from paceline.drafting.registry import build_matching_drafter
from paceline.gateway.http_app import build_app
from paceline.gateway.service import GatewayService
from paceline.gateway.target_pool import PoolSnapshot
from paceline.routing.policy import SpeculateWhenLive
from paceline.telemetry.metrics import Metrics
from paceline.text.tokenizer import TextTokenizer
from soak.fleet_config import make_subject
from soak.jobs import draw_jobs
from soak.load import Load
from soak.questions import draw_questions
from soak.truth import compute_truths
from soak.verdict import Kind

NUM_REQUESTS = 120
FAULTS = Path(__file__).parent.parent / "fixtures" / "faults"


class EnginePool:
    """One place, which every request gets at once: the engine itself."""

    def __init__(self, backend: NativeBackend) -> None:
        self._backend = backend
        self.identity = backend.identity
        self.replica_id = "here"

    def snapshot(self) -> PoolSnapshot:
        load = self._backend.snapshot()
        return PoolSnapshot(load.drafter_groups, queued=0, running=load.running, ready=True)

    @contextlib.asynccontextmanager
    async def place(self, wish):
        yield self

    def stream(self, request):
        return self._backend.generate(request)


@pytest.fixture(scope="module")
def subject(tmp_path_factory):
    return make_subject("tiny", tmp_path_factory.mktemp("model"))


@pytest.fixture(scope="module")
def drawn(subject):
    """Jobs, their questions and the truth."""
    rng = random.Random(3)
    questions = draw_questions(rng, 60, 320)
    jobs = draw_jobs(rng, NUM_REQUESTS, questions, ("lookup",))
    return jobs, questions, asyncio.run(compute_truths(questions, subject.folder, subject.checked))


@pytest.fixture
def fates(subject, drawn):
    """Runs the load on a gateway that is made at the moment of the call; gives the verdicts."""

    def run() -> Counter:
        config = subject.checked
        tokenizer = TextTokenizer.load(subject.folder, vocab_size=320)
        facts = TargetFacts(tokenizer.vocabulary, 2048)
        section = config.drafters["lookup"]
        config = config.model_copy(update={"drafters": {"lookup": section}})
        drafters = {"lookup": build_matching_drafter("lookup", section, facts)}
        backend = NativeBackend.start(subject.folder, config=config, drafters=drafters)
        service = GatewayService(
            EnginePool(backend),
            tokenizer,
            policy=SpeculateWhenLive(),
            gateway=config.gateway,
            engine=config.engine,
            verifier="coupled",
            tunables=Tunables(draft_adaptive=False),
            metrics=Metrics(),
        )
        load = Load(*drawn)
        with http_door.serve(build_app(lambda: service)) as url, grpc_door.serve(service) as address:
            asyncio.run(load.run(url, address, at_a_time=8))
        asyncio.run(backend.close())
        service.close()
        run.accepted = sum(fate.hearing.accepted for fate in load.fates)
        run.examples = [str(fate.verdict.detail) for fate in load.fates if fate.verdict.kind.is_fault]
        return Counter(fate.verdict.kind for fate in load.fates)

    return run


def test_a_sound_gateway_passes(fates):
    """Every request of the mixed load is as it should be, whatever door, sampling, speculation and client."""
    found = fates()

    assert fates.examples == []
    assert found[Kind.RIGHT] > NUM_REQUESTS / 2
    assert found[Kind.REFUSED] > 0
    assert found[Kind.LEFT] > 0
    assert fates.accepted > NUM_REQUESTS, fates.accepted


@pytest.mark.parametrize(
    ("bug", "expected"),
    [("dropped_chunk", Kind.WRONG), ("other_seed", Kind.WRONG), ("early_end", Kind.TRUNCATED)],
)
def test_planted_bugs_are_found(bug, expected, fates, monkeypatch, tmp_path):
    """One lost batch of chunks, one other seed, one early end in a hundred: each is seen."""
    monkeypatch.syspath_prepend(FAULTS)
    monkeypatch.setenv("PACELINE_TEST_SWITCHES", str(tmp_path))
    (tmp_path / bug).write_text("0.01" if bug != "other_seed" else "0.1")
    fault = importlib.import_module(bug)
    fault.install(importlib.import_module(fault.MODULE), monkeypatch.setattr)

    found = fates()

    assert found[expected] > 0, found
