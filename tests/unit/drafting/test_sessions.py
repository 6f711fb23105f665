"""A session after any dialogue is the context that the target meant."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from draft_dialogue import opening, row
from paceline.core.drafts import NeedSync
from paceline.core.hashed_tokens import HashedTokens
from paceline.drafting.sessions import DraftSession, SessionTable

contexts = st.lists(st.integers(0, 2), max_size=12).map(tuple)


@given(known=contexts, wanted=contexts, data=st.data())
def test_applying_gives_the_wanted_context_or_asks_for_what_is_missing(
    known: tuple[int, ...], wanted: tuple[int, ...], data: st.DataObject
) -> None:
    """Kept tokens really were equal; NEED_SYNC leads to the wanted context in at most two more requests."""
    session = DraftSession(opening())
    session.apply(row(HashedTokens(known), 0, depth=0))
    target = HashedTokens(wanted)
    base = data.draw(st.integers(0, len(wanted)))
    for _ in range(3):
        outcome = session.apply(row(target, base, depth=0))
        if not isinstance(outcome, NeedSync):
            break
        assert outcome.from_length in (0, len(session.tokens))
        base = min(outcome.from_length, len(wanted))
    assert not isinstance(outcome, NeedSync)
    assert session.tokens.slice(0) == wanted
    assert session.context_hash == target.hash_at(len(wanted))
    assert known[:outcome] == wanted[:outcome]


def test_kept_tokens_reach_as_far_as_both_texts_agree() -> None:
    """A full resend of a text that is mostly known keeps the common beginning."""
    session = DraftSession(opening())
    session.apply(row(HashedTokens((1, 2, 3, 4)), 0, depth=0))
    assert session.apply(row(HashedTokens((1, 2, 9, 4)), 0, depth=0)) == 2
    assert session.apply(row(HashedTokens((1, 2, 9, 4)), 0, depth=0)) == 4


def test_the_longest_idle_session_has_the_lowest_use() -> None:
    """Each request marks its session as the newest in use."""
    table: SessionTable[DraftSession] = SessionTable()
    for name in ("a", "b", "c"):
        table.add(DraftSession(opening(name)))
        table.apply(row(HashedTokens((1,)), 0, depth=0, session=name))
    table.apply(row(HashedTokens((1, 2)), 1, depth=0, session="a"))
    assert [s.opening.session for s in sorted(table, key=lambda s: s.last_use)] == ["b", "c", "a"]


def test_closing_returns_what_was_open() -> None:
    """Unknown names are ignored."""
    table: SessionTable[DraftSession] = SessionTable()
    table.add(DraftSession(opening("a")))
    assert [s.opening.session for s in table.pop(["a", "b", "a"])] == ["a"]
    assert len(table) == 0
    assert table.get("a") is None
    assert table.apply(row(HashedTokens((1,)), 0, depth=0, session="a")) == NeedSync("a", 0)


@pytest.mark.parametrize("base", [3, 7])
def test_being_behind_changes_nothing(base: int) -> None:
    """A request that cannot be applied leaves the session as it was."""
    session = DraftSession(opening())
    session.apply(row(HashedTokens((1, 2)), 0, depth=0))
    assert session.apply(row(HashedTokens(range(8)), base, depth=0)) == NeedSync("s", 2)
    assert session.tokens.slice(0) == (1, 2)
