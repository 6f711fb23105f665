import math

import pytest

from draft_dialogue import ask, opening, row
from drafters import LyingDrafter
from paceline.core.drafts import DraftBudget, DraftProposal, DraftRequest, DraftTree, FeatureBlock, SparseLaw
from paceline.core.hashed_tokens import HashedTokens
from paceline.core.model_identity import FeatureFacts
from paceline.rpc.draft_checks import fault_of, row_fault

BUDGET = DraftBudget(max_depth=3, max_nodes=4, top_k=2)
VOCAB = 10
FEATURE = FeatureFacts("last", 2)


def proposal(tree: DraftTree, laws: tuple[SparseLaw, ...] = ()) -> DraftProposal:
    return DraftProposal("s", 5, 1, tree, laws)


def fault(tree: DraftTree, laws: tuple[SparseLaw, ...] = ()) -> str | None:
    return fault_of(proposal(tree, laws), budget=BUDGET, vocabulary_size=VOCAB)


def law(*probabilities: float) -> SparseLaw:
    return SparseLaw(tuple(range(len(probabilities))), probabilities)


@pytest.mark.parametrize(
    "tree",
    [
        DraftTree((), ()),
        DraftTree.chain((1, 2, 3)),
        DraftTree((1, 2, 3, 4), (-1, -1, 0, 1)),
        DraftTree((0, 9), (-1, 0)),
    ],
)
def test_good_trees_pass(tree):
    """Chains, trees and empty proposals within the budget are let through."""
    assert fault(tree) is None


@pytest.mark.parametrize(
    ("tree", "name"),
    [
        (DraftTree.chain((-1,)), "token_id"),
        (DraftTree.chain((VOCAB,)), "token_id"),
        (DraftTree((1, 2), (-1, 1)), "parent"),
        (DraftTree((1, 2), (-1, -2)), "parent"),
        (DraftTree((1, 2), (-1,)), "parent"),
        (DraftTree.chain((1, 2, 3, 4)), "budget"),  # too deep
        (DraftTree((1, 2, 3, 4, 5), (-1, -1, 0, 0, 1)), "budget"),  # too many
        (DraftTree((1, 2, 3), (-1, -1, -1)), "budget"),  # too wide
        (DraftTree((1, 2, 3), (-1, 0, -1)), "order"),  # depth first
        (DraftTree((1, 1), (-1, -1)), "sibling"),
        (DraftTree((1, 2, 3, 3), (-1, -1, 1, 1)), "sibling"),
    ],
)
def test_broken_trees_are_named(tree, name):
    """Each rule that a tree can break has its name."""
    assert fault(tree) == name


@pytest.mark.parametrize(
    "bad",
    [
        law(0.5, 0.4),
        law(0.5, 0.6),
        law(math.nan, 1.0),
        law(math.inf, 0.0),
        law(-0.5, 1.5),
        law(0.0, 1.0),  # the drafted id 0 has no mass
        SparseLaw((0, 0), (0.5, 0.5)),
        SparseLaw((0, VOCAB), (0.5, 0.5)),
        SparseLaw((0, 1), (1.0,)),
        SparseLaw((1,), (1.0,)),
        SparseLaw((), ()),
    ],
)
def test_broken_laws_are_named(bad):
    """A law that is no distribution, or not one that the draft can come from, is a fault."""
    assert fault(DraftTree.chain((0,)), (bad,)) == "law"


def test_laws_come_for_every_node_or_for_none():
    """A missing law would make the verifier take a draw for a certainty."""
    good = law(0.25, 0.75)
    assert fault(DraftTree.chain((0, 1)), (good, good)) is None
    assert fault(DraftTree.chain((0, 1)), (good,)) == "law_count"


def test_siblings_share_one_law():
    """They are drawn without replacement from it; cousins have laws of their own."""
    one, other = law(0.25, 0.75), law(0.5, 0.5)
    tree = DraftTree((0, 1, 0, 0), (-1, -1, 0, 1))
    assert fault(tree, (one, one, other, one)) is None
    assert fault(tree, (one, other, one, one)) == "sibling_law"
    assert fault(DraftTree((0, 2), (-1, -1)), (one, one)) == "law"  # no draw from it gives 2
    assert fault(DraftTree((0, 1), (-1, -1)), (one, SparseLaw((), ()))) == "sibling_law"


@pytest.mark.parametrize("lie", LyingDrafter.LIES)
def test_every_lie_is_caught(lie):
    """No kind of lying drafter gets a proposal through."""
    reference = HashedTokens([1, 2, 3, 4, 5, 6, 7])
    drafter = LyingDrafter([reference.ids], lie=lie, vocab_size=VOCAB)
    drafter.open([opening()])
    lying = ask(drafter, row(HashedTokens([1, 2]), 0, depth=3))

    assert isinstance(lying, DraftProposal)
    assert fault_of(lying, budget=DraftBudget(3, 3), vocabulary_size=VOCAB) is not None


def test_rows_are_checked_before_the_drafter_sees_them():
    """Ids outside the vocabulary, budgets without bounds and contexts beyond the limit are refused by name."""

    def check(row: DraftRequest) -> str | None:
        return row_fault(row, vocabulary_size=VOCAB, context_length=8, feature=FEATURE)

    assert check(DraftRequest("s", 2, 1, (1, 9), BUDGET)) is None
    assert check(DraftRequest("s", 2, 1, (1, 10), BUDGET)) == "INVALID_ROW"
    assert check(DraftRequest("s", -1, 1, (1,), BUDGET)) == "INVALID_ROW"
    assert check(DraftRequest("s", 2, 1, (1,), DraftBudget(3, -1))) == "INVALID_ROW"
    assert check(DraftRequest("s", 2, 1, (1,), DraftBudget(64, 64, 16))) is None
    for budget in (DraftBudget(10**6, 4), DraftBudget(3, 10**6), DraftBudget(3, 4, 10**6)):
        assert check(DraftRequest("s", 2, 1, (1,), budget)) == "INVALID_ROW"
    assert check(DraftRequest("s", 7, 1, (1, 2), BUDGET)) == "CONTEXT_LENGTH"


@pytest.mark.parametrize(
    ("base_length", "count", "data"),
    [
        (2, -1, b""),
        (2, 3, bytes(12)),
        (2, 2, bytes(6)),
        (2, 2, bytes(10)),
        (2, 1, b"\x80\x7f\x00\x00"),
        (2, 1, b"\x00\x00\xc1\xff"),
        (0, 2, bytes(8)),
    ],
    ids=["negative", "more than tokens", "too short", "too long", "infinite", "not a number", "first token"],
)
def test_features_that_do_not_fit_are_refused(base_length, count, data):
    """One finite vector of the agreed size for each of the last tokens; the first token of a text has none."""
    row = DraftRequest("s", base_length, 1, (1, 2), BUDGET, features=FeatureBlock(count, data))

    assert row_fault(row, vocabulary_size=VOCAB, context_length=8, feature=FEATURE) == "INVALID_FEATURES"


def test_features_are_taken_by_a_drafter_that_needs_them():
    """Also for the last tokens only, or for none; a drafter that needs none refuses them."""
    for count in (0, 1, 2):
        row = DraftRequest("s", 2, 1, (1, 2), BUDGET, features=FeatureBlock(count, b"\x80\x3f\x7f\x7f" * count))

        assert row_fault(row, vocabulary_size=VOCAB, context_length=8, feature=FEATURE) is None
        assert row_fault(row, vocabulary_size=VOCAB, context_length=8, feature=None) == "INVALID_FEATURES"
