"""Time of drafting by levels."""

import pytest

from paceline.engine.draft_times import DraftTimes


def noted(rounds: list[tuple[int, float]]) -> DraftTimes:
    times = DraftTimes()
    for levels, seconds in rounds:
        times.note(levels, seconds)
    return times


def test_nothing_is_claimed_before_the_first_round():
    """And no levels take no time ever."""
    assert not DraftTimes().measured
    assert DraftTimes()(3) == 0.0
    assert noted([(2, 0.5)])(0) == 0.0


def test_of_one_depth_all_time_is_the_levels():
    """Half the levels, half the time."""
    assert noted([(4, 0.008)] * 3)(2) == pytest.approx(0.004)


def test_a_constant_and_a_time_per_level_are_told_apart():
    """2 ms for each round and 1 ms for each level, in whatever order they come."""
    times = noted([(1, 0.003), (5, 0.007), (3, 0.005)] * 4)

    assert [times(levels) for levels in (1, 2, 8)] == pytest.approx([0.003, 0.004, 0.010])


def test_one_slow_round_changes_nothing():
    """A hiccup of the machine is no habit."""
    assert noted([(1, 0.001), (2, 0.002)] * 5 + [(1, 9.0)])(1) == pytest.approx(0.001)


def test_neither_part_is_below_zero():
    """Heads that draft all levels at once, and levels that get dearer with depth."""
    assert noted([(1, 0.004), (5, 0.003)])(5) == pytest.approx(0.0035)
    assert noted([(1, 0.001), (2, 0.008)])(1) == pytest.approx(0.003)
