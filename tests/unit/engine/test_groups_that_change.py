"""Drafter groups that come and go while the engine decodes."""

import pytest

from drafters import OracleDrafter
from engine_harness import Harness
from paceline.engine.drafter_group import DrafterSlot
from toy_target import ToyRunner, hashed_law

VOCAB = 11
LAW = hashed_law(VOCAB)
PROMPT = (1, 2, 3)
LENGTH = 40


@pytest.fixture(name="reference")
def _reference() -> tuple[int, ...]:
    plain = Harness(ToyRunner(LAW, VOCAB))
    plain.submit("plain/1", PROMPT, max_tokens=LENGTH)
    plain.run()
    return plain.ids("plain/1")


def _steps(harness: Harness, count: int) -> None:
    for _ in range(count):
        harness.engine.step()


@pytest.mark.parametrize("own", ["gone", "stays"])
def test_a_group_that_is_removed_in_mid_answer_costs_drafts_only(own, reference):
    """Own and shadow sessions end, the text is that of plain decoding, and nothing asks the drafter again."""
    drafters = {name: OracleDrafter([PROMPT + reference]) for name in ("gone", "stays")}
    harness = Harness(ToyRunner(LAW, VOCAB), drafters, local=False, shadow_share=0.25)
    for number in range(12):  # enough that some are sampled for comparison
        harness.submit(f"r{number}/1", PROMPT, max_tokens=LENGTH, drafter=own)
    _steps(harness, 3)
    assert drafters["gone"].num_proposals or own == "stays"

    harness.speculation.remove_group("gone")
    proposals = drafters["gone"].num_proposals
    harness.run()

    assert [harness.ids(f"r{number}/1") for number in range(12)] == [reference] * 12
    assert drafters["gone"].num_proposals == proposals
    assert harness.speculation.num_sessions == 0
    assert [group.name for group in harness.speculation.groups()] == ["stays"]


def test_a_group_that_is_added_drafts_for_later_requests(reference):
    """Answers that run already go on as they were planned."""
    harness = Harness(ToyRunner(LAW, VOCAB))
    harness.submit("before/1", PROMPT, max_tokens=LENGTH)
    _steps(harness, 2)

    harness.speculation.add_group("new", DrafterSlot(OracleDrafter([PROMPT + reference]), local=False))
    harness.submit("after/1", PROMPT, max_tokens=LENGTH, drafter="new")
    harness.run()

    assert harness.ids("before/1") == harness.ids("after/1") == reference
    assert harness.last("after/1").stats.accepted > 0
    assert harness.last("before/1").stats.drafted == 0


def test_a_group_can_come_back(reference):
    """A request that comes between runs plain; the next one is drafted by what is there then."""
    harness = Harness(ToyRunner(LAW, VOCAB), {"g": OracleDrafter([PROMPT + reference])}, local=False)
    harness.speculation.remove_group("g")
    harness.submit("between/1", PROMPT, max_tokens=LENGTH, drafter="g")
    _steps(harness, 2)

    harness.speculation.add_group("g", DrafterSlot(OracleDrafter([PROMPT + reference]), local=False))
    harness.submit("after/1", PROMPT, max_tokens=LENGTH, drafter="g")
    harness.run()

    assert harness.ids("between/1") == harness.ids("after/1") == reference
    assert harness.last("between/1").stats.drafted == 0
    assert harness.last("after/1").stats.accepted > 0
