"""What several continuations have in common is one node; what is likely comes first."""

from hypothesis import given
from hypothesis import strategies as st

from paceline.core.drafts import DraftBudget, DraftTree
from paceline.drafting.ngram_index import Continuation
from paceline.drafting.ngram_trie import merged_tree

continuations = st.lists(
    st.builds(Continuation, st.tuples(*[st.integers(0, 2)] * 4), st.integers(1, 5)), min_size=1, max_size=12
).map(lambda found: sorted(found, key=lambda one: -one.match_length))


def _merged(*texts: str, nodes: int = 64, top_k: int = 16, lengths: tuple[int, ...] = ()) -> list[str]:
    """Paths to all nodes of the tree, in its order."""
    found = [
        Continuation(tuple(map(ord, text)), length)
        for text, length in zip(texts, lengths or [2] * len(texts), strict=True)
    ]
    tree = merged_tree(found, DraftBudget(max_depth=8, max_nodes=nodes, top_k=top_k))
    paths: list[str] = []
    for token_id, parent in zip(tree.token_ids, tree.parents, strict=True):
        paths.append(("" if parent < 0 else paths[parent]) + chr(token_id))
    return paths


def test_common_beginnings_are_shared() -> None:
    """Branches part where the continuations do."""
    assert _merged("abc", "abd", "aef") == ["a", "ab", "ae", "abc", "abd", "aef"]


def test_siblings_rank_by_frequency_and_then_by_order() -> None:
    """Behind the first continuation's own token comes what followed most often, then what came first."""
    assert _merged("a", "b", "c", "d", "c") == ["a", "c", "b", "d"]


def test_an_occurrence_counts_by_the_length_of_its_match() -> None:
    """Two short matches weigh less than one long one."""
    assert _merged("a", "b", "c", "c", lengths=(8, 8, 2, 2)) == ["a", "b", "c"]


def test_few_nodes_go_where_the_text_agrees() -> None:
    """Depth is bought on the branch that was seen often, width where there is doubt."""
    assert _merged("abc", "abc", "abc", "xyz", nodes=3) == ["a", "ab", "abc"]
    assert _merged("abc", "xyz", nodes=3) == ["a", "x", "ab"]


@given(continuations, st.integers(1, 8), st.integers(1, 4))
def test_a_tree_stays_in_its_budget_and_leads_with_the_first(
    found: list[Continuation], max_nodes: int, top_k: int
) -> None:
    """Breadth-first, no more nodes and children than asked for, distinct siblings; a chain is the first."""
    tree = merged_tree(found, DraftBudget(max_depth=4, max_nodes=max_nodes, top_k=top_k))
    assert tree.is_valid
    assert 0 < len(tree) <= max_nodes
    assert list(tree.parents) == sorted(tree.parents)
    for node in range(-1, len(tree)):
        ids = [tree.token_ids[child] for child in tree.children(node)]
        assert len(set(ids)) == len(ids) <= top_k
    first_level = [tree.token_ids[child] for child in tree.children(-1)]
    assert found[0].token_ids[0] not in first_level[1:]
    if top_k == 1:
        assert tree == DraftTree.chain(found[0].token_ids[:max_nodes])
