"""What every drafter owes its user, whatever its method."""

from collections.abc import Callable
from functools import partial

import pytest

from draft_dialogue import ask, opening, replies, row
from drafters import AntiOracleDrafter, CoinDrafter, OracleDrafter, SlowDrafter
from head_drafters import head_drafter
from paceline.core.drafts import DraftProposal, NeedSync
from paceline.core.hashed_tokens import HashedTokens
from paceline.drafting.cascade import CascadeDrafter
from paceline.drafting.draft_model import DraftModelDrafter
from paceline.drafting.drafter import Drafter
from paceline.drafting.ngram import NgramDrafter
from tiny_models import VOCAB_SIZE
from toy_target import ToyRunner, hashed_law

VOCAB = 11
TEXT = tuple([1, 2, 3, 4, 5] * 12)


def _draft_model() -> DraftModelDrafter:
    return DraftModelDrafter(ToyRunner(hashed_law(VOCAB), VOCAB), eos_token_ids=(), prefill_chunk=7)


HONEST: dict[str, Callable[[], Drafter]] = {
    "ngram": NgramDrafter,
    "draft_model": _draft_model,
    "cascade": lambda: CascadeDrafter(
        ToyRunner(hashed_law(VOCAB), VOCAB), NgramDrafter(), eos_token_ids=(), prefill_chunk=7
    ),
    **{
        f"{kind} {place}": partial(head_drafter, kind, place)
        for kind in ("eagle", "mtp", "mtp-parallel", "medusa", "medusa-reduced")
        for place in ("in process", "remote")
    },
    "oracle": lambda: OracleDrafter([TEXT]),
    "anti_oracle": lambda: AntiOracleDrafter([TEXT], vocab_size=VOCAB),
    "coin": lambda: CoinDrafter([TEXT], vocab_size=VOCAB, share=0.5),
    "slow": lambda: SlowDrafter([TEXT], delay_s=0.005),
}


def _vocabulary(drafter: Drafter) -> int:
    return VOCAB_SIZE if drafter.method in {"eagle", "mtp", "medusa"} else VOCAB


@pytest.fixture(params=HONEST)
def drafter(request: pytest.FixtureRequest) -> Drafter:
    made = HONEST[request.param]()
    assert made.live
    assert made.method == request.param.split()[0].split("-")[0]
    return made


def _proposal(drafter: Drafter, tokens: HashedTokens, base_length: int, *, depth: int = 3) -> DraftProposal:
    reply = ask(drafter, row(tokens, base_length, depth=depth))
    assert isinstance(reply, DraftProposal)
    return reply


def test_a_proposal_names_the_context_that_it_follows(drafter: Drafter) -> None:
    """Length and hash of a proposal are those of the context after the request is applied."""
    drafter.open([opening()])
    tokens = HashedTokens(TEXT[:30])
    proposal = _proposal(drafter, tokens, 0)
    assert (proposal.base_length, proposal.base_hash) == (30, tokens.hash_at(30))
    assert len(proposal.tree) > 0
    assert proposal.tree.is_chain
    assert all(0 <= token_id < _vocabulary(drafter) for token_id in proposal.tree.token_ids)


def test_one_request_gets_one_reply_and_nothing_stays_pending(drafter: Drafter) -> None:
    """`num_pending` counts requests without a reply; each session's request is answered once."""
    drafter.open([opening("a"), opening("b")])
    tokens = HashedTokens(TEXT[:30])
    drafter.request([row(tokens, 0, depth=2, session="a"), row(tokens, 0, depth=2, session="b")])
    assert drafter.num_pending == 2
    assert sorted(reply.session for reply in replies(drafter)) == ["a", "b"]
    assert drafter.num_pending == 0
    assert drafter.collect(0.0) == []


def test_a_request_sent_twice_changes_nothing(drafter: Drafter) -> None:
    """After a repeated request the context is the same, so the next round still fits."""
    drafter.open([opening()])
    tokens = HashedTokens(TEXT[:20])
    first = _proposal(drafter, tokens, 0)
    again = _proposal(drafter, tokens, 0)
    assert (first.base_length, first.base_hash) == (again.base_length, again.base_hash)
    tokens.extend(TEXT[20:22])
    assert _proposal(drafter, tokens, 20).base_length == 22


def test_an_unknown_session_needs_sync_from_zero(drafter: Drafter) -> None:
    """A session that was never opened, or was closed, asks for everything."""
    tokens = HashedTokens(TEXT[:10])
    assert ask(drafter, row(tokens, 0, depth=2)) == NeedSync("s", 0)
    drafter.open([opening()])
    _proposal(drafter, tokens, 0)
    drafter.close(["s"])
    assert ask(drafter, row(tokens, 10, depth=2)) == NeedSync("s", 0)


def test_a_drafter_that_is_behind_names_what_it_has_and_never_proposes(drafter: Drafter) -> None:
    """A base beyond the known tokens is answered by their number; from there the dialogue goes on."""
    drafter.open([opening()])
    tokens = HashedTokens(TEXT[:10])
    _proposal(drafter, tokens, 0)
    tokens.extend(TEXT[10:40])
    assert ask(drafter, row(tokens, 35, depth=2)) == NeedSync("s", 10)
    assert _proposal(drafter, tokens, 10).base_length == 40


def test_other_text_needs_sync_from_zero(drafter: Drafter) -> None:
    """A base hash that differs means that nothing known can be trusted."""
    drafter.open([opening()])
    _proposal(drafter, HashedTokens(TEXT[:10]), 0)
    other = HashedTokens((9, *TEXT[1:12]))
    assert ask(drafter, row(other, 10, depth=2)) == NeedSync("s", 0)
    assert _proposal(drafter, other, 0).base_hash == other.hash_at(12)


def test_a_drafter_that_is_ahead_is_cut_back(drafter: Drafter) -> None:
    """Where the target goes on from an earlier point, tokens beyond it are forgotten."""
    drafter.open([opening()])
    _proposal(drafter, HashedTokens(TEXT[:25]), 0)
    branched = HashedTokens((*TEXT[:20], 7))
    proposal = _proposal(drafter, branched, 20)
    assert (proposal.base_length, proposal.base_hash) == (21, branched.hash_at(21))


@pytest.mark.parametrize(("depth", "nodes"), [(1, 1), (4, 2), (2, 4), (5, 5)])
def test_a_proposal_stays_inside_its_budget(drafter: Drafter, depth: int, nodes: int) -> None:
    """Neither depth nor number of nodes is exceeded."""
    drafter.open([opening()])
    reply = ask(drafter, row(HashedTokens(TEXT[:40]), 0, depth=depth, nodes=nodes))
    assert isinstance(reply, DraftProposal)
    assert 0 < len(reply.tree) <= min(depth, nodes)


def test_a_budget_of_zero_only_brings_up_to_date(drafter: Drafter) -> None:
    """The reply is an empty proposal, and the next request need not resend the context."""
    drafter.open([opening()])
    tokens = HashedTokens(TEXT[:33])
    empty = _proposal(drafter, tokens, 0, depth=0)
    assert len(empty.tree) == 0
    assert (empty.base_length, empty.base_hash) == (33, tokens.hash_at(33))
    tokens.extend(TEXT[33:35])
    assert _proposal(drafter, tokens, 33).base_length == 35


def test_a_newer_request_replaces_one_that_is_pending(drafter: Drafter) -> None:
    """Only the newest request of a session is answered."""
    drafter.open([opening()])
    tokens = HashedTokens(TEXT[:20])
    drafter.request([row(tokens, 0, depth=2)])
    tokens.extend(TEXT[20:23])
    drafter.request([row(tokens, 20, depth=2)])
    assert drafter.num_pending == 1
    (reply,) = replies(drafter)
    assert isinstance(reply, DraftProposal)
    assert reply.base_length == 23


def test_a_newer_request_replaces_a_sync_that_was_not_collected(drafter: Drafter) -> None:
    """A request that could not be applied is not answered once a better one has come."""
    drafter.open([opening()])
    tokens = HashedTokens(TEXT[:20])
    drafter.request([row(tokens, 15, depth=2)])
    drafter.request([row(tokens, 0, depth=2)])
    assert drafter.num_pending == 1
    (reply,) = replies(drafter)
    assert isinstance(reply, DraftProposal)
    assert reply.base_length == 20


def test_a_fork_is_filled_like_any_other_session(drafter: Drafter) -> None:
    """Naming another session is a hint: rows from 0 are answered for their own text, also after the other is gone."""
    drafter.open([opening("a"), opening("b", fork_of="a"), opening("c", fork_of="never opened")])
    tokens = {name: HashedTokens(TEXT[:30]) for name in "abc"}
    drafter.request([row(known, 0, depth=2, session=name) for name, known in tokens.items()])
    assert sorted(reply.session for reply in replies(drafter) if isinstance(reply, DraftProposal)) == ["a", "b", "c"]
    drafter.close(["a"])
    for name in "bc":
        tokens[name].extend((1, 2))
        reply = ask(drafter, row(tokens[name], 30, depth=2, session=name))
        assert isinstance(reply, DraftProposal)
        assert (reply.base_length, reply.base_hash) == (32, tokens[name].hash_at(32))


def test_opening_again_starts_afresh(drafter: Drafter) -> None:
    """A session that is opened twice knows nothing, and its pending request is gone."""
    drafter.open([opening()])
    tokens = HashedTokens(TEXT[:20])
    drafter.request([row(tokens, 0, depth=2)])
    drafter.open([opening()])
    assert drafter.num_pending == 0
    tokens.extend(TEXT[20:21])  # over a link the first answer may be under way, and would fit the same context
    assert ask(drafter, row(tokens, 20, depth=2)) == NeedSync("s", 0)


def test_closing_drops_pending_requests_and_ignores_unknown_names(drafter: Drafter) -> None:
    """No reply comes for a closed session."""
    drafter.open([opening()])
    drafter.request([row(HashedTokens(TEXT[:20]), 0, depth=2)])
    drafter.close(["s", "never opened"])
    assert drafter.num_pending == 0
    assert drafter.collect(0.0) == []


def test_sessions_do_not_see_each_other(drafter: Drafter) -> None:
    """Two sessions with different text get proposals for their own contexts."""
    drafter.open([opening("a"), opening("b")])
    mine, other = HashedTokens(TEXT[:15]), HashedTokens(TEXT[:18])
    drafter.request([row(mine, 0, depth=2, session="a"), row(other, 0, depth=2, session="b")])
    lengths = {r.session: r.base_length for r in replies(drafter) if isinstance(r, DraftProposal)}
    assert lengths == {"a": 15, "b": 18}
