"""Draft trees."""

from paceline.core.drafts import DraftTree


def test_chain_links_each_token_to_the_one_before():
    """A chain's first node hangs on the committed token, every other on its predecessor."""
    tree = DraftTree.chain((5, 6, 7))

    assert tree.parents == (-1, 0, 1)
    assert tree.is_chain
    assert len(tree) == 3


def test_a_branching_tree_is_no_chain():
    """Two children of one node are told apart from a chain."""
    assert not DraftTree((5, 6, 7), (-1, 0, 0)).is_chain
    assert DraftTree.chain(()).is_chain
