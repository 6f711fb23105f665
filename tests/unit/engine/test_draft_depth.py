"""Drafts as deep as they pay, against a search through all depths."""

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from paceline.engine.draft_depth import Prospect, best_depths
from paceline.engine.step_time import PassTimes

MEMORY_BOUND = PassTimes(((1.0, 0.040), (100.0, 0.041)))
STEEP = PassTimes(((1.0, 0.040), (101.0, 2.0)))

reaches = st.lists(st.floats(0.05, 1.0), min_size=1, max_size=3).map(
    lambda shares: tuple(itertools.accumulate(shares, lambda left, share: left * share))
)
curves = st.lists(st.floats(0.001, 0.2), min_size=3, max_size=3).map(
    lambda steps: PassTimes(tuple(zip((1.0, 5.0, 12.0), itertools.accumulate(steps), strict=True)))
)


def rate(prospects, num_plain, pass_s, depths, level_s=0.0):
    rows = len(prospects) + num_plain
    committed = rows + sum(sum(p.reach[:depth]) for p, depth in zip(prospects, depths, strict=True))
    return committed / (level_s * max(depths) + pass_s(rows + sum(depths)))


@given(st.lists(reaches.map(Prospect), min_size=1, max_size=3), st.integers(0, 4), curves, st.floats(0.0, 0.1))
def test_no_other_depths_commit_more_tokens_per_second(prospects, num_plain, pass_s, level_s):
    """For any acceptance, batch, shape of the pass time and time of a level."""
    depths = best_depths(prospects, num_plain, pass_s, lambda levels: level_s * levels)
    others = itertools.product(*(range(len(p.reach) + 1) for p in prospects))

    assert rate(prospects, num_plain, pass_s, depths, level_s) == pytest.approx(
        max(rate(prospects, num_plain, pass_s, other, level_s) for other in others)
    )


def test_where_tokens_are_free_all_drafts_pay():
    """A pass that is bound by memory takes whatever is offered."""
    assert best_depths([Prospect((0.5, 0.2)), Prospect((0.1,))], 0, MEMORY_BOUND) == [2, 1]


def test_where_tokens_are_dear_unlikely_drafts_do_not_pay():
    """Each sequence gets the depth that its own acceptance is worth."""
    assert best_depths([Prospect((0.95, 0.93)), Prospect((0.1, 0.01))], 2, STEEP) == [2, 0]


def test_wide_levels_have_to_bring_more():
    """A tree's level costs as many tokens as it has nodes."""
    curve = PassTimes(((1.0, 0.040), (41.0, 0.440)))

    assert best_depths([Prospect((0.6, 0.4))], 0, curve) == [2]
    assert best_depths([Prospect((0.6, 0.4), nodes_per_level=4.0)], 0, curve) == [0]


def test_levels_that_take_the_targets_time_have_to_bring_more():
    """Where tokens are free: a level that takes a fifth of a pass pays once, one of a whole pass never."""
    prospects = [Prospect((0.4, 0.15, 0.05))]

    assert best_depths(prospects, 0, MEMORY_BOUND, lambda levels: 0.008 * levels) == [1]
    assert best_depths(prospects, 0, MEMORY_BOUND, lambda levels: 0.040 * levels) == [0]


def test_before_the_first_pass_everything_is_drafted():
    """Nothing is known that speaks against it."""
    assert best_depths([Prospect((0.5, 0.2))], 3, PassTimes()) == [2]
