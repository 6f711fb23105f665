"""Drafts from the text itself."""

from draft_dialogue import ask, opening, row
from paceline.core.drafts import DraftProposal, DraftTree
from paceline.core.hashed_tokens import HashedTokens
from paceline.drafting.ngram import NgramDrafter


def _draft(drafter: NgramDrafter, tokens: HashedTokens, base: int, depth: int = 4) -> tuple[int, ...]:
    reply = ask(drafter, row(tokens, base, depth=depth))
    assert isinstance(reply, DraftProposal)
    assert reply.laws == ()
    return reply.tree.token_ids


def test_it_copies_what_followed_before() -> None:
    """After 'the cat' stood in the text, its continuation is proposed again."""
    drafter = NgramDrafter()
    drafter.open([opening()])
    assert _draft(drafter, HashedTokens([10, 11, 12, 13, 14, 10, 11]), 0, depth=3) == (12, 13, 14)


def test_no_match_gives_an_empty_proposal() -> None:
    """New text is answered, with nothing."""
    drafter = NgramDrafter()
    drafter.open([opening()])
    assert _draft(drafter, HashedTokens(range(20)), 0) == ()


def test_a_suffix_shorter_than_the_minimum_is_no_match() -> None:
    """One repeated token proposes nothing at min_match 2."""
    for min_match, expected in ((1, (6, 7)), (2, ())):
        drafter = NgramDrafter(min_match=min_match)
        drafter.open([opening()])
        assert _draft(drafter, HashedTokens([5, 6, 7, 5]), 0, depth=2) == expected


def test_rolled_back_text_is_not_copied() -> None:
    """What the target took back cannot come from the index any more."""
    drafter = NgramDrafter()
    drafter.open([opening()])
    _draft(drafter, HashedTokens([1, 2, 3, 8, 8, 8]), 0)
    assert _draft(drafter, HashedTokens([1, 2, 3, 4, 1, 2]), 3) == (3, 4, 1, 2)
    assert _draft(drafter, HashedTokens([1, 2, 3, 4, 8, 8]), 4) == ()


def test_a_tree_offers_what_followed_other_matches() -> None:
    """Two continuations of one suffix become two branches; the newest leads."""
    text = [1, 2, 3, 4, 9, 1, 2, 5, 6, 9, 1, 2]
    assert _tree(text, depth=2, nodes=4, top_k=2) == DraftTree((5, 3, 6, 4), (-1, -1, 0, 1))


def test_a_chain_is_the_first_branch_of_the_tree() -> None:
    """top_k 1 gives what followed the newest of the longest matches, though another is more frequent."""
    text = [1, 2, 3, 3, 1, 2, 3, 3, 1, 2, 4, 4, 1, 2]
    assert _tree(text, depth=3, nodes=3, top_k=1) == DraftTree.chain((4, 4, 1))
    assert _tree(text, depth=1, nodes=2, top_k=2).token_ids == (4, 3)


def test_a_proposal_without_a_match_is_empty_as_a_tree_too() -> None:
    """New text is answered, with nothing."""
    assert len(_tree(list(range(9)), depth=3, nodes=9, top_k=3)) == 0


def _tree(text: list[int], *, depth: int, nodes: int, top_k: int) -> DraftTree:
    drafter = NgramDrafter()
    drafter.open([opening()])
    reply = ask(drafter, row(HashedTokens(text), 0, depth=depth, nodes=nodes, top_k=top_k))
    assert isinstance(reply, DraftProposal)
    assert reply.laws == ()
    return reply.tree
