"""Proposals for comparison: what they say about a drafter, and that they cost the target nothing."""

from dataclasses import replace

import pytest

from drafters import AntiOracleDrafter, CoinDrafter, OracleDrafter
from engine_harness import Harness
from paceline.core.drafts import DraftProposal, DraftTree
from paceline.core.hashed_tokens import HashedTokens
from paceline.engine.shadow import Comparison, compare
from toy_target import ToyRunner, hashed_law

VOCAB = 11
LAW = hashed_law(VOCAB)
BASE = (1, 2, 3)
TREE = DraftTree((4, 5, 6, 7), (-1, -1, 0, 2))  # 4 -> 6 -> 7, and 5 beside 4


def against(*committed, tree=TREE):
    base = HashedTokens(BASE)
    return compare(DraftProposal("s", 3, base.hash_at(3), tree), HashedTokens(BASE + committed))


@pytest.mark.parametrize(
    ("committed", "expected"),
    [
        ((), Comparison(0, 0, decided=False)),
        ((9,), Comparison(1, 0, decided=True)),
        ((5,), Comparison(1, 1, decided=True)),  # 5 has no children: nothing below is tested
        ((4,), Comparison(1, 1, decided=False)),
        ((4, 9), Comparison(2, 1, decided=True)),
        ((4, 6, 7), Comparison(3, 3, decided=True)),
        ((4, 6, 7, 1), Comparison(3, 3, decided=True)),
    ],
)
def test_levels_are_compared_as_verification_would(committed, expected):
    """A level counts as tested only where the path above it was committed and the tree goes on."""
    assert against(*committed) == expected


def test_a_proposal_for_another_text_says_nothing():
    """Its hash tells; so does an empty one."""
    other = DraftProposal("s", 3, 12345, TREE)

    assert compare(other, HashedTokens((*BASE, 4))) == Comparison(0, 0, decided=True)
    assert against(4, tree=DraftTree((), ())) == Comparison(0, 0, decided=True)


def run(make_drafter, *, share, drafter=None, num=6, length=60, local=False):
    prompts = [(index, *BASE) for index in range(num)]
    plain = Harness(ToyRunner(LAW, VOCAB))
    for index, prompt in enumerate(prompts):
        plain.submit(f"r{index}/1", prompt, seed=index, max_tokens=length)
    plain.run()
    references = [p + plain.ids(f"r{i}/1") for i, p in enumerate(prompts)]
    shadow = make_drafter(references)
    harness = Harness(ToyRunner(LAW, VOCAB), {"g": shadow}, local=local, shadow_share=share)
    for index, prompt in enumerate(prompts):
        harness.submit(f"r{index}/1", prompt, seed=index, max_tokens=length, drafter=drafter)
    harness.run()
    assert [p + harness.ids(f"r{i}/1") for i, p in enumerate(prompts)] == references
    return harness, plain, shadow


def counts(harness, position):
    labels = {"group": "g", "position": str(position)}
    return harness.counted("SHADOW_TESTED_AT", **labels), harness.counted("SHADOW_ACCEPTED_AT", **labels)


def test_an_unused_group_proposes_in_its_share_of_rounds_and_costs_no_pass():
    """At most one round in four of each sampled sequence; the passes of the target are those of plain decoding."""
    harness, plain, shadow = run(OracleDrafter, share=0.25)

    assert harness.runner.passes == plain.runner.passes
    assert 0.08 * 360 < shadow.num_proposals < 0.3 * 360
    assert harness.counted("DRAFTED_TOKENS", group="g") == 0


@pytest.mark.parametrize(
    ("make", "low", "high"),
    [
        (OracleDrafter, 1.0, 1.0),
        (lambda refs: AntiOracleDrafter(refs, vocab_size=VOCAB), 0.0, 0.0),
        (lambda refs: CoinDrafter(refs, vocab_size=VOCAB, share=0.6), 0.35, 0.85),
    ],
    ids=["always right", "always wrong", "right in 6 of 10"],
)
def test_the_counters_find_the_acceptance(make, low, high):
    """What is counted at a position is what verification would have found there."""
    harness, _, _ = run(make, share=0.25)
    tested, accepted = counts(harness, 0)

    assert tested > 20
    assert low <= accepted / tested <= high
    if low == 1.0:
        assert counts(harness, 3)[1] > 20


def test_few_sequences_are_sampled_at_a_small_share():
    """At 3 % about one sequence in eight gets a session of its own; the others cost the drafter nothing."""
    _, _, shadow = run(OracleDrafter, share=0.03, num=16, length=24)

    assert 0 < shadow.num_proposals <= 0.06 * 16 * 24


def test_a_drafter_in_this_process_is_not_asked():
    """It would draft in the target's time, and plain decoding would not be plain."""
    _, _, shadow = run(OracleDrafter, share=0.25, local=True)

    assert shadow.num_proposals == 0


@pytest.mark.parametrize("how", ["share", "limit", "group"])
def test_nothing_is_compared_when_it_is_off(how):
    """Share 0, no drafts at all, or a group that is turned off: no call of a drafter."""
    _, _, shadow = run(OracleDrafter, share=0.0)
    assert shadow.num_proposals == 0
    if how == "group":
        harness = Harness(ToyRunner(LAW, VOCAB), {"g": shadow}, local=False, shadow_share=0.25)
        harness.speculation.apply(replace(harness.speculation._settings, disabled_groups=frozenset({"g"})))
        harness.submit("r/1", BASE, max_tokens=30)
        harness.run()
        assert shadow.num_proposals == 0
    if how == "limit":
        harness = Harness(ToyRunner(LAW, VOCAB), {"g": shadow}, local=False, shadow_share=0.25, max_draft_tokens=0)
        harness.submit("r/1", BASE, max_tokens=30)
        harness.run()
        assert shadow.num_proposals == 0
