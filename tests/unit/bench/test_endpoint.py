"""Levels of one round."""

import pytest

from paceline.bench.endpoint import round_counts
from paceline.bench.records import RoundCounts

TREE = (-1, -1, 0, 0, 2)  # two children of the root; the first has two, of which the first has one


@pytest.mark.parametrize(
    ("accepted", "parents", "path", "expected"),
    [
        (0, (), (), RoundCounts(1, 0, 5, 5)),
        (2, (), (), RoundCounts(3, 2, 5, 5)),
        (5, (), (), RoundCounts(5, 5, 5, 5)),  # nothing further was drafted
        (0, TREE, (), RoundCounts(1, 0, 5, 3)),
        (1, TREE, (0,), RoundCounts(2, 1, 5, 3)),
        (1, TREE, (1,), RoundCounts(1, 1, 5, 3)),  # the tree is deeper elsewhere, but not below this node
        (3, TREE, (0, 2, 4), RoundCounts(3, 3, 5, 3)),
    ],
)
def test_one_level_beyond_the_accepted_ones_was_looked_at(accepted, parents, path, expected):
    """Where the drafts go on there; chains and trees."""
    assert round_counts(5, accepted, parents=parents, path=path) == expected


def test_a_plain_round_tests_nothing():
    """No drafts, no levels."""
    assert round_counts(0, 0, parents=(), path=()) == RoundCounts(0, 0)
