from paceline.kvcache.page_pool import PagePool, PageTable
from paceline.modeling.forward_row import ForwardRow


def row(parents):
    return ForwardRow([1, 2, 3, 4], 5, PageTable(PagePool(1, 16), 9), 4, parents)


def test_a_tree_with_one_branch_is_a_chain():
    """Nothing branches, so nothing needs a tree."""
    chain = row((-1, 0, 1))

    assert not chain.branches
    assert (chain.stop, chain.tree_start) == (9, 9)


def test_a_tree_begins_where_its_first_node_stands():
    """Siblings branch, wherever they are."""
    tree = row((-1, -1, 0))

    assert tree.branches
    assert (tree.stop, tree.tree_start) == (9, 6)
