"""Figures of acceptance, on rounds whose figures are known."""

import numpy as np
import pytest

from paceline.bench.records import DraftCounts, Recording, RoundCounts
from paceline.training.acceptance_figures import (
    accepted_ratio,
    depth_of,
    drafted_answer,
    figures,
    mean_interval,
    ratio_of_means,
    select,
    width_of,
)


def answer(*rounds, prompt=0, category="chat", text="fine", tokens=None):
    """``rounds``: (tested, accepted[, nodes, depth])."""
    counts = tuple(RoundCounts(*entry) for entry in rounds)
    accepted = sum(entry.accepted for entry in counts)
    drafting = DraftCounts(len(counts), sum(entry.tested for entry in counts), accepted, counts)
    committed = accepted + len(counts) if tokens is None else tokens
    recording = Recording((), text, 1, committed, exact_counts=True, drafting=drafting)
    return drafted_answer(recording, prompt=prompt, category=category)


def test_a_position_counts_only_where_those_before_it_were_accepted():
    """Three rounds of three drafts: 0, 1 and 3 accepted."""
    found = figures([answer((1, 0, 3, 3), (2, 1, 3, 3), (3, 3, 3, 3))])

    assert found.positions_pooled == pytest.approx((2 / 3, 1 / 2, 1.0))
    assert found.tau_pooled == pytest.approx(7 / 3)
    assert found.tau_pooled == pytest.approx(1 + 2 / 3 + 2 / 3 * 1 / 2 + 2 / 3 * 1 / 2 * 1)


def test_a_prompt_counts_as_much_as_any_other_in_the_mean_and_by_its_rounds_when_pooled():
    """One short answer with all accepted, one long with none."""
    found = figures([answer((1, 1, 1, 1)), answer(*[(1, 0, 1, 1)] * 9)])

    assert found.first.value == pytest.approx(0.5)
    assert found.positions_pooled == pytest.approx((0.1,))
    assert (found.tau.value, found.tau_pooled) == pytest.approx((1.5, 1.1))


def test_rounds_without_drafts_cost_tau_and_no_acceptance():
    """The target works for them; no position was tested."""
    found = figures([answer((1, 1, 1, 1), (0, 0, 0, 0))])

    assert found.positions == (1.0,)
    assert found.tau_pooled == pytest.approx(1.5)
    assert found.drafted_share == 0.5


def test_depth_and_width_are_those_of_rounds_with_drafts():
    """A tree of 6 nodes in 2 levels, a chain of 4, and a round without any."""
    drafted = answer((1, 0, 6, 2), (1, 0, 4, 4), (0, 0, 0, 0))

    assert depth_of(drafted) == pytest.approx(3)
    assert width_of(drafted) == pytest.approx(10 / 6)


def test_looping_answers_are_told_apart():
    """Eight words three times."""
    looping = answer((1, 1, 1, 1), text="a b c d e f g h " * 3)
    kept = answer((1, 0, 1, 1), category="code")

    assert select([looping, kept]) == [kept]
    assert select([looping, kept], lambda entry: entry.category == "chat") == []


def test_nothing_gives_no_figures():
    """Rather than zeros, which would look like a result."""
    found = figures([])

    assert (found.answers, found.first, found.tau, found.tau_pooled, found.positions) == (0, None, None, None, ())
    assert mean_interval([]) is None
    assert ratio_of_means([], [1.0]) is None


def test_the_interval_holds_the_truth_as_often_as_it_says():
    """95 % bootstrap intervals of means of 60 draws, over 300 repetitions."""
    draws = np.random.default_rng(0)
    held = sum(
        (found := mean_interval(list(draws.beta(2, 3, size=60)), seed=seed)).low <= 0.4 <= found.high
        for seed in range(300)
    )

    assert 0.90 <= held / 300 <= 0.985


def test_drafters_are_compared_on_the_prompts_that_neither_looped_on():
    """Accepted drafts a pass, over the same prompts, whichever order they come in."""
    mine = [answer((2, 2, 2, 2), prompt=index) for index in range(5)]
    theirs = [answer((2, 1, 2, 2), prompt=index) for index in range(4, -1, -1)]
    loop = answer((2, 2, 2, 2), prompt=0, text="a b c d e f g h " * 3)

    assert accepted_ratio(mine, theirs) == pytest.approx((2, 2, 2))
    assert accepted_ratio([loop, *mine[1:]], theirs).value == pytest.approx(2)
    assert accepted_ratio(mine, []) is None
    assert accepted_ratio(mine, [answer((1, 0, 1, 1), prompt=0)]) is None
