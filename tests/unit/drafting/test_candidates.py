"""The best part of what was seen, as a tree."""

from hypothesis import given
from hypothesis import strategies as st

from paceline.core.drafts import DraftTree
from paceline.drafting.candidates import Candidate, breadth_first, cheapest, tree_of


def _grown(steps: list[tuple[int, float]]) -> list[Candidate]:
    """Each step adds a child to an earlier node (or to the root) at some cost."""
    nodes = [Candidate((), (), 0.0)]
    for token_id, (place, cost) in enumerate(steps):
        parent = nodes[place % len(nodes)]
        rank = sum(node.ranks[:-1] == parent.ranks for node in nodes[1:])
        nodes.append(Candidate((*parent.ranks, rank), (*parent.token_ids, token_id), parent.cost + cost))
    return nodes[1:]


steps = st.lists(st.tuples(st.integers(0, 30), st.sampled_from((0.0, 0.5, 1.0, 2.0))), max_size=14)


@given(steps)
def test_a_tree_holds_the_paths_of_its_candidates(grown: list[tuple[int, float]]) -> None:
    """Breadth first, so parents ascend; reading the tree from any node up gives that candidate's tokens."""
    nodes = breadth_first(_grown(grown))
    tree = tree_of(nodes)
    assert list(tree.parents) == sorted(tree.parents)
    for place, candidate in enumerate(nodes):
        path, node = [], place
        while node >= 0:
            path.append(tree.token_ids[node])
            node = tree.parents[node]
        assert tuple(reversed(path)) == candidate.token_ids


@given(steps, st.integers(0, 10))
def test_the_cheapest_nodes_hold_their_ancestors(grown: list[tuple[int, float]], max_nodes: int) -> None:
    """No node that was left out costs less than one that was kept, and what is kept is a tree."""
    candidates = _grown(grown)
    kept = cheapest(candidates, max_nodes)
    assert len(kept) == min(max_nodes, len(candidates))
    left_out = [candidate.cost for candidate in candidates if candidate not in kept]
    assert max((candidate.cost for candidate in kept), default=0.0) <= min(left_out, default=float("inf"))
    assert tree_of(kept).is_valid


def test_ties_go_to_the_shallower_and_then_to_the_lower_rank() -> None:
    """Equal costs are no matter of chance."""
    candidates = _grown([(0, 1.0), (0, 1.0), (1, 0.0), (0, 1.0)])
    assert tree_of(cheapest(candidates, 3)) == DraftTree((0, 1, 3), (-1, -1, -1))
    assert tree_of(cheapest(candidates[:3], 3)) == DraftTree((0, 1, 2), (-1, -1, 0))
