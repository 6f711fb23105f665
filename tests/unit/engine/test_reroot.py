"""What is left of a proposal once tokens have been committed behind its back."""

from hypothesis import given
from hypothesis import strategies as st

from paceline.core.drafts import DraftProposal, DraftTree, SparseLaw
from paceline.core.hashed_tokens import HashedTokens
from paceline.engine.reroot import reroot, shorten

CONTEXT = (7, 8, 9)
#        root
#      0:10      1:11
#    2:12 3:13   4:12
#    5:14        6:15 7:16
TREE = DraftTree((10, 11, 12, 13, 12, 14, 15, 16), (-1, -1, 0, 0, 1, 2, 4, 4))


def proposal(tree=TREE, *, context=CONTEXT):
    """A proposal whose laws tell which node they belong to."""
    laws = tuple(SparseLaw((node,), (1.0,)) for node in range(len(tree)))
    return DraftProposal("s", len(context), HashedTokens(context).hash_at(len(context)), tree, laws)


def after(*committed):
    return HashedTokens((*CONTEXT, *committed))


def nodes_of(fitted):
    """The nodes of the first proposal that are left."""
    return [law.token_ids[0] for law in fitted.laws]


def test_the_tree_below_the_committed_path_is_left_in_order():
    """Sub-tree, laws and new prefix belong together."""
    fitted = reroot(proposal(), after(11))

    assert nodes_of(fitted) == [4, 6, 7]
    assert fitted.tree == DraftTree((12, 15, 16), (-1, 0, 0))
    assert (fitted.base_length, fitted.base_hash) == (4, after(11).hash_at(4))
    assert reroot(proposal(), after(10, 12)).tree == DraftTree((14,), (-1,))


def test_nothing_committed_leaves_the_proposal_as_it_is():
    """The very object, so that nobody counts it as re-rooted."""
    asked = proposal()
    assert reroot(asked, after()) is asked


def test_a_path_to_a_leaf_leaves_an_empty_tree():
    """The proposal was right to its end; there is nothing more in it."""
    fitted = reroot(proposal(), after(10, 13))
    assert len(fitted.tree) == len(fitted.laws) == 0


def test_tokens_that_are_no_path_of_the_tree_end_the_proposal():
    """Tokens of two branches, a token beyond a leaf, another context."""
    for committed in ((12,), (10, 15), (11, 13), (10, 13, 14)):
        assert reroot(proposal(), after(*committed)) is None
    assert reroot(proposal(context=(7, 8, 1)), after()) is None
    assert reroot(proposal(context=(*CONTEXT, 1)), after()) is None


@st.composite
def random_trees(draw):
    size = draw(st.integers(1, 12))
    parents = sorted(draw(st.integers(-1, index - 1)) for index in range(size))
    return DraftTree(tuple(range(20, 20 + size)), tuple(parents))


def path_to(tree, node):
    path = []
    while node >= 0:
        path.append(tree.token_ids[node])
        node = tree.parents[node]
    return tuple(reversed(path))


@given(random_trees(), st.integers(0, 11))
def test_every_path_below_is_a_path_of_the_whole_tree(tree, place):
    """Re-rooting at any node keeps exactly its descendants, each behind the same tokens."""
    node = place % len(tree)
    above = path_to(tree, node)
    fitted = reroot(proposal(tree), after(*above))
    paths = [path_to(tree, n) for n in range(len(tree))]

    assert [above + path_to(fitted.tree, n) for n in range(len(fitted.tree))] == [
        path for path in paths if path[: len(above)] == above and path != above
    ]
    assert fitted.tree.is_valid


@given(random_trees(), st.integers(1, 12))
def test_a_shortened_tree_is_the_first_nodes_whatever_their_tokens(tree, limit):
    """The cut depends on places alone, and no node loses its parent."""
    short = shorten(proposal(tree), max_nodes=limit, max_depth=99)

    assert nodes_of(short) == list(range(min(limit, len(tree))))
    assert short.tree == DraftTree(tree.token_ids[:limit], tree.parents[:limit])


def test_nodes_that_lie_too_deep_are_cut_wherever_they_stand():
    """An answer with two tokens left has room for one level, of all its nodes."""
    assert nodes_of(shorten(proposal(), max_nodes=9, max_depth=1)) == [0, 1]
    assert nodes_of(shorten(proposal(), max_nodes=3, max_depth=2)) == [0, 1, 2]
    assert shorten(proposal(), max_nodes=9, max_depth=0).laws == ()


def test_proposals_without_laws_stay_without_laws():
    """No law means that every draft counts as certain; cutting must not invent any."""
    bare = DraftProposal("s", 3, HashedTokens(CONTEXT).hash_at(3), TREE)
    assert reroot(bare, after(11)).laws == ()
    assert shorten(bare, max_nodes=2, max_depth=9).laws == ()
