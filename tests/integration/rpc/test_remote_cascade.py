"""A cascade of three levels behind a real gRPC link: the text of plain decoding, and its levels at work."""

import pytest

from engine_harness import Harness
from linked_engine import UnhurriedRunner
from paceline.drafting.cascade import CascadeDrafter
from paceline.drafting.matching import DrafterFacts
from paceline.drafting.ngram import NgramDrafter
from paceline.engine.waiting import Action, Move, Snapshot
from paceline.telemetry import catalogue
from paceline.telemetry.metrics import Metrics
from peers import loop_thread, remote
from toy_target import ToyRunner, blended_law, hashed_law

VOCAB = 11
TARGET = hashed_law(VOCAB, memory=3)
MIDDLE = blended_law(TARGET, hashed_law(VOCAB, salt=3), 0.3)
SMALL = blended_law(MIDDLE, hashed_law(VOCAB, salt=4), 0.4)


def patient(snapshot: Snapshot) -> Move:
    """Wait for every draft that is under way."""
    return Move(Action.WAIT, tuple(range(len(snapshot.outstanding))), 1.0, longest_s=10.0)


def cascade(metrics: Metrics) -> CascadeDrafter:
    """n-gram, a small model, a middle one."""
    labels = {"eos_token_ids": (), "group": "g", "metrics": metrics}
    small = CascadeDrafter(ToyRunner(SMALL, VOCAB), NgramDrafter(min_match=1), level=1, **labels)
    return CascadeDrafter(ToyRunner(MIDDLE, VOCAB), small, level=2, **labels)


@pytest.mark.parametrize("top_k", [1, 3])
def test_answers_are_those_of_plain_decoding(top_k: int) -> None:
    """At temperature 0, 1 and 0.5; every level passes, keeps, rejects and corrects, and the target accepts."""
    metrics = Metrics(strict=True)
    with loop_thread() as thread, remote(thread, cascade(metrics), DrafterFacts("cascade", "g")) as link:
        harness = Harness(UnhurriedRunner(TARGET, VOCAB), {"g": link}, local=False, choose=patient, top_k=top_k)
        for seed in range(6):
            for drafter in (None, "g"):
                harness.submit(
                    f"{seed}/{drafter}", (1, 2, 3), drafter=drafter, seed=seed, temperature=seed % 3 / 2, max_tokens=40
                )
        harness.run()

    assert harness.counted("ACCEPTED_TOKENS", group="g") > 0
    for seed in range(6):
        assert harness.ids(f"{seed}/g") == harness.ids(f"{seed}/None")
    for level in ("1", "2"):
        for counter in (
            catalogue.CASCADE_PASSES,
            catalogue.CASCADE_KEPT_TOKENS,
            catalogue.CASCADE_REJECTED_TOKENS,
            catalogue.CASCADE_CORRECTIONS,
        ):
            assert metrics.value(counter, group="g", level=level) > 0, (counter.name, level)
