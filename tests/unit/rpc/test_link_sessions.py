from dataclasses import replace

import pytest

from draft_dialogue import opening, row
from paceline.core.drafts import DraftProposal, DraftRefusal, DraftTree, NeedSync
from paceline.core.hashed_tokens import HashedTokens
from paceline.rpc.link_sessions import Admission, LinkSessions

TOKENS = HashedTokens(range(10))


def upto(length: int, base: int, *, depth: int = 2, deadline_ms: int = 0, session: str = "s"):
    """A row that brings the session to ``length`` tokens from ``base``."""
    made = row(HashedTokens(TOKENS.slice(0, length)), base, depth=depth, session=session)
    return replace(made, deadline_ms=deadline_ms)


def proposal(length: int, *ids: int, session: str = "s") -> DraftProposal:
    return DraftProposal(session, length, TOKENS.hash_at(length), DraftTree.chain(ids))


@pytest.fixture
def sessions() -> LinkSessions:
    made = LinkSessions(vocabulary_size=10)
    made.link_up()
    made.open([opening("s")])
    return made


def test_opening_travels_with_the_first_row_only(sessions):
    """One message opens a session and asks; later ones only ask."""
    sessions.request([upto(4, 0)], now=0)
    first = sessions.take(now=0)
    sessions.request([upto(5, 4)], now=0)
    second = sessions.take(now=0)
    assert [o.session for o in first.openings] == ["s"]
    assert second.openings == []
    assert second.rows == [upto(5, 4)]
    assert sessions.take(now=0) is None


def test_rows_that_wait_are_merged(sessions):
    """A row that builds on one not sent yet carries both; one that starts again replaces it."""
    sessions.request([upto(4, 0)], now=0)
    sessions.request([upto(6, 4)], now=0)
    assert sessions.take(now=0).rows == [upto(6, 0)]
    sessions.request([upto(8, 6)], now=0)
    sessions.request([upto(8, 2)], now=0)
    assert sessions.take(now=0).rows == [upto(8, 2)]
    sessions.request([upto(8, 2)], now=0)
    sessions.request([upto(9, 5)], now=0)  # from the middle of what waits, as after NEED_SYNC
    assert sessions.take(now=0).rows == [upto(9, 2)]


def test_time_in_the_outbox_counts_against_the_deadline(sessions):
    """The drafter is told what is left of the deadline, not what there was."""
    sessions.request([upto(4, 0, deadline_ms=100)], now=1.0)
    assert sessions.take(now=1.03).rows[0].deadline_ms == pytest.approx(70, abs=1)


def test_answer_settles_its_row(sessions):
    """One answer to the newest request ends the wait for it and says how long it took."""
    sessions.request([upto(4, 0)], now=1.0)
    assert sessions.num_awaited(now=1.0) == 1
    admission = sessions.admit(proposal(4, 1, 2), now=1.5)
    assert admission.reply == proposal(4, 1, 2)
    assert admission.waited_s == 0.5
    assert sessions.num_awaited(now=1.5) == 0


def test_stale_proposal_is_handed_on_but_settles_nothing(sessions):
    """The engine re-roots what answers an older request; the newer one is still waited for."""
    sessions.request([upto(4, 0)], now=0)
    sessions.request([upto(5, 4)], now=0)
    admission = sessions.admit(proposal(4, 1, 2), now=0)
    assert admission.reply is not None
    assert sessions.num_awaited(now=0) == 1


@pytest.mark.parametrize(
    ("reply", "dropped"),
    [
        (proposal(4, 1, session="other"), "closed"),
        (proposal(7, 1), "stale"),  # nobody asked for drafts after 7 tokens
        (proposal(4, 10), "invalid"),  # no such id
        (proposal(4, 1, 2, 3), "invalid"),  # deeper than asked
    ],
)
def test_untrusted_proposals_are_dropped_with_a_reason(sessions, reply, dropped):
    """What does not answer a request of ours within its limits never reaches the engine."""
    sessions.request([upto(4, 0)], now=0)
    assert sessions.admit(reply, now=0)[:2] == (None, dropped)


def test_late_answer_is_dropped_and_not_waited_for(sessions):
    """After its deadline a row is neither pending nor used."""
    sessions.request([upto(4, 0, deadline_ms=100)], now=0)
    assert sessions.num_awaited(now=0.2) == 0
    assert sessions.admit(proposal(4, 1), now=0.2).dropped == "late"


def test_unknown_session_is_opened_again(sessions):
    """NEED_SYNC from the start means that the drafter lost the session: the opening goes along again."""
    sessions.request([upto(4, 2)], now=0)
    sessions.take(now=0)
    assert sessions.admit(NeedSync("s", 0), now=0).reply == NeedSync("s", 0)
    sessions.request([upto(4, 0)], now=0)
    assert len(sessions.take(now=0).openings) == 1


def test_need_for_what_the_newest_row_brings_is_stale(sessions):
    """A complaint about a replaced row does not settle the row that replaced it."""
    sessions.request([upto(4, 2)], now=0)
    sessions.take(now=0)
    sessions.request([upto(4, 0)], now=0)
    assert sessions.admit(NeedSync("s", 0), now=0) == Admission(None, "stale")
    assert sessions.num_awaited(now=0) == 1


def test_row_from_zero_carries_its_opening(sessions):
    """Whatever the drafter has lost, such a row can be applied."""
    sessions.request([upto(4, 0)], now=0)
    sessions.take(now=0)
    sessions.request([upto(5, 0)], now=0)
    assert len(sessions.take(now=0).openings) == 1


def test_refusal_settles_the_row(sessions):
    """A refusal is an answer."""
    sessions.request([upto(4, 0)], now=0)
    sessions.admit(DraftRefusal("s", "KV_FULL", 10), now=0)
    assert sessions.num_awaited(now=0) == 0


def test_broken_link_loses_rows_until_the_next_one_is_up(sessions):
    """Rows without an answer, and those asked for in between, are answered by NeedSync(0), once."""
    sessions.open([opening("t"), opening("u")])
    sessions.request([upto(4, 0), upto(4, 0, session="u")], now=0)
    sessions.take(now=0)
    sessions.admit(proposal(4, 1, session="u"), now=0)

    sessions.link_down()
    sessions.request([upto(4, 0, session="t")], now=0)

    assert sessions.num_awaited(now=0) == 0
    assert sessions.take(now=0) is None
    assert sorted(reply.session for reply in sessions.link_up()) == ["s", "t"]
    assert sessions.link_up() == []
    sessions.request([upto(4, 0)], now=0)
    assert [o.session for o in sessions.take(now=0).openings] == ["s"]


def test_close_is_sent_only_for_what_the_drafter_knows(sessions):
    """Closing what was never sent costs no message; closing the rest does, and is not repeated."""
    sessions.close(["s", "unknown"])
    assert sessions.take(now=0) is None
    sessions.open([opening("s")])
    sessions.request([upto(4, 0)], now=0)
    sessions.take(now=0)
    sessions.close(["s"])
    assert sessions.take(now=0).closes == ["s"]
    assert sessions.take(now=0) is None
    assert sessions.request([upto(5, 4)], now=0) == [NeedSync("s", 0)]


def test_memory_of_what_was_asked_is_bounded(sessions):
    """A session that runs for long remembers its newest requests only."""
    for length in range(1, 10):
        sessions.request([upto(length, length - 1)], now=0)
    assert sessions.admit(proposal(1, 1), now=0).dropped == "stale"
    assert sessions.admit(proposal(8, 1), now=0).reply is not None


def test_a_proposal_says_how_long_it_was_under_way(sessions):
    """From its own request to its arrival here, whenever the engine looks; also where a newer request followed."""
    sessions.request([upto(4, 0)], now=1.0)
    sessions.request([upto(5, 4)], now=2.0)
    sessions.take(now=2.0)
    older, newer = sessions.admit(proposal(4, 1), now=2.5), sessions.admit(proposal(5, 2), now=2.75)
    assert (older.reply.waited_s, newer.reply.waited_s) == (1.5, 0.75)
    assert (older.waited_s, newer.waited_s) == (None, 0.75)
