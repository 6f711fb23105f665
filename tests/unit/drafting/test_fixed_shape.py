"""Shapes that are settled before anything is drawn."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from paceline.drafting.fixed_shape import fixed_shape


def test_one_child_a_node_is_a_chain() -> None:
    """At top_k 1 every node but the last has one child."""
    assert fixed_shape(3, 9, 1) == {(): 1, (0,): 1, (0, 0): 1}
    assert fixed_shape(9, 2, 1) == {(): 1, (0,): 1}


@pytest.mark.parametrize(
    ("budget", "shape"),
    [
        ((1, 9, 3), {(): 3}),
        ((2, 6, 2), {(): 2, (0,): 2, (1,): 2}),
        ((4, 5, 2), {(): 2, (0,): 1, (0, 0): 1, (0, 0, 0): 1}),
        ((4, 7, 2), {(): 2, (0,): 2, (0, 0): 1, (0, 0, 0): 1, (1,): 1}),
        ((0, 5, 2), {}),
    ],
)
def test_nodes_go_where_drafts_are_likeliest_to_be_accepted(
    budget: tuple[int, int, int], shape: dict[tuple[int, ...], int]
) -> None:
    """First children get the depth, their siblings what is left."""
    assert fixed_shape(*budget) == shape


@given(st.integers(0, 6), st.integers(0, 40), st.integers(1, 5))
def test_a_shape_uses_its_budget_and_is_a_tree(max_depth: int, max_nodes: int, top_k: int) -> None:
    """Every node has its parent and its elder siblings, and no node is left out that would fit."""
    shape = fixed_shape(max_depth, max_nodes, top_k)
    full = sum(top_k**depth for depth in range(1, max_depth + 1))
    assert sum(shape.values()) == min(max_nodes, full)
    for ranks, num_children in shape.items():
        assert 0 < num_children <= top_k
        assert len(ranks) < max_depth
        assert not ranks or shape[ranks[:-1]] > ranks[-1]
