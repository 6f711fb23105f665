import numpy as np
import pytest

from paceline.kvcache.page_pool import PagePool, PageTable
from paceline.modeling.forward_row import ForwardRow
from paceline.modeling.masks import ancestors, key_positions, visible_keys

PARENTS = (-1, -1, 0, 0, 1, 2)  # depths 1 1 2 2 2 3
DEPTHS = (1, 1, 2, 2, 2, 3)


def row(start, count, parents=()):
    table = PageTable(PagePool(64, 1), start + count)
    table.extend_to(start + count)
    return ForwardRow([0] * count, start, table, 0, parents)


@pytest.mark.parametrize("window", [None, 1, 3])
def test_a_chain_sees_what_is_before_it(window):
    """Key j is visible to the query at place i iff j <= i and, with a window, j > i - window."""
    visible = visible_keys(row(2, 3), np.array([0, 1, 2, 2]), 6, window=window)

    for line, place in zip(visible, (2, 3, 4, 4), strict=True):
        assert line.tolist() == [key <= place and (window is None or key > place - window) for key in range(6)]


@pytest.mark.parametrize("window", [None, 1, 2, 4])
def test_a_node_sees_its_context_its_ancestors_and_itself(window):
    """Siblings are hidden, and a window counts positions, of which siblings have the same."""
    start, chained = 3, 2
    tree = row(start, chained + len(PARENTS), PARENTS)
    visible = visible_keys(tree, np.arange(chained + len(PARENTS)), 12, window=window)

    first = start + chained  # place of node 0
    for node in range(len(PARENTS)):
        path, above = [node], PARENTS[node]
        while above >= 0:
            path.append(above)
            above = PARENTS[above]
        keys = {place: place for place in range(first)} | {first + n: first - 1 + DEPTHS[n] for n in path}
        position = first - 1 + DEPTHS[node]
        seen = {key for key, at in keys.items() if window is None or at > position - window}
        assert set(np.flatnonzero(visible[chained + node]).tolist()) == seen


def test_positions_follow_depth():
    """Nodes of one depth share a position; what is before the tree keeps its own."""
    assert key_positions(row(3, 8, PARENTS)).tolist() == [0, 1, 2, 3, 4, *(4 + depth for depth in DEPTHS)]
    assert key_positions(row(3, 2)).tolist() == [0, 1, 2, 3, 4]


def test_ancestors_are_the_way_to_the_root():
    """A node is of its own family, its parent's family is too, nobody else is."""
    assert [np.flatnonzero(line).tolist() for line in ancestors(PARENTS)] == [
        [0],
        [1],
        [0, 2],
        [0, 3],
        [1, 4],
        [0, 2, 5],
    ]
