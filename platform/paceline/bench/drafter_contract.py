"""What every drafter owes its user, as claims that are put to the test on one drafter.

The dialogue is that of docs/guides/write-a-drafter.md.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple

from paceline.bench.drafter_talk import BrokenError, Talk, request_for
from paceline.core.drafts import DraftBudget, DraftProposal, DrawRule, NeedSync
from paceline.core.hashed_tokens import HashedTokens
from paceline.core.sampling_params import SamplingParams

_BUDGETS = (
    DraftBudget(1, 1),
    DraftBudget(64, 1),
    DraftBudget(1, 64, 8),
    DraftBudget(5, 3),
    DraftBudget(8, 8, 0),
    DraftBudget(64, 64),
    DraftBudget(6, 24, 3),
    DraftBudget(3, 0),
    DraftBudget(0, 5),
)
_KINDS = (
    (SamplingParams(temperature=0.0), DrawRule.COUPLED),
    (SamplingParams(temperature=1.0), DrawRule.COUPLED),
    (SamplingParams(temperature=1.0, top_p=0.9), DrawRule.INDEPENDENT),
)


class Finding(NamedTuple):
    """One claim, and what contradicts it; None: nothing."""

    claim: str
    contradiction: str | None


def check_contract(talk: Talk) -> list[Finding]:
    """Put every claim to the test, each with sessions of its own; all are closed at the end."""
    return [Finding(claim, _contradiction(look, talk)) for claim, look in CLAIMS.items()]


def _contradiction(look: Callable[[Talk], None], talk: Talk) -> str | None:
    seen = None
    try:
        look(talk)
    except BrokenError as error:
        seen = str(error)
    try:
        talk.close_all()
    except BrokenError as error:
        seen = seen or str(error)
    return seen


def _tokens(talk: Talk, length: int) -> HashedTokens:
    return HashedTokens(talk.text[:length])


def _expect_sync(talk: Talk, tokens: HashedTokens, base_length: int, *, most: int, when: str) -> None:
    """The reply must name tokens to begin with that the drafter can have."""
    reply = talk.ask(request_for(tokens, base_length))
    if isinstance(reply, DraftProposal):
        raise BrokenError(f"it proposed for tokens that it cannot have: {when}")
    if isinstance(reply, NeedSync) and not 0 <= reply.from_length <= most:
        raise BrokenError(f"it answered NeedSync({reply.from_length}) {when}; it can have {most} tokens at most")
    if not isinstance(reply, NeedSync):
        raise BrokenError(f"it refused ({reply.reason}) {when}")


def _expect_context(proposal: DraftProposal, tokens: HashedTokens) -> None:
    if (proposal.base_length, proposal.base_hash) != (len(tokens), tokens.hash_at(len(tokens))):
        raise BrokenError(
            f"a proposal names a context of {proposal.base_length} tokens and its hash; asked was one of {len(tokens)}"
        )


def _names_context(talk: Talk) -> None:
    talk.open("s")
    tokens = _tokens(talk, 30)
    _expect_context(talk.propose(request_for(tokens, 0)), tokens)
    tokens.extend(talk.text[30:33])
    _expect_context(talk.propose(request_for(tokens, 30)), tokens)


def _counts_pending(talk: Talk) -> None:
    talk.open("a", "b")
    tokens = _tokens(talk, 20)
    talk.send(*(request_for(tokens, 0, session=name) for name in "ab"))
    ready = 2 - talk.num_pending
    if ready:
        raise BrokenError(f"num_pending is {2 - ready} after two requests and before any reply")
    names = sorted(reply.session for reply in talk.replies())
    if names != ["a", "b"]:
        raise BrokenError(f"requests of sessions a and b were answered for {', '.join(names) or 'nobody'}")
    if talk.collect():
        raise BrokenError("collect gave a reply that nobody had asked for")


def _is_idempotent(talk: Talk) -> None:
    talk.open("s")
    tokens = _tokens(talk, 20)
    for _ in range(2):
        _expect_context(talk.propose(request_for(tokens, 0)), tokens)
    tokens.extend(talk.text[20:22])
    for _ in range(2):
        _expect_context(talk.propose(request_for(tokens, 20)), tokens)


def _syncs_unknown(talk: Talk) -> None:
    _expect_sync(talk, _tokens(talk, 10), 0, most=0, when="in a session that was never opened")
    talk.open("s")
    _expect_sync(talk, _tokens(talk, 20), 12, most=0, when="in a session that got no tokens yet")


def _syncs_behind(talk: Talk) -> None:
    talk.open("s")
    talk.propose(request_for(_tokens(talk, 10), 0))
    tokens = _tokens(talk, 40)
    _expect_sync(talk, tokens, 35, most=10, when="with 10 tokens where 35 were assumed")
    _expect_context(talk.propose(request_for(tokens, 0)), tokens)


def _syncs_other_text(talk: Talk) -> None:
    talk.open("s")
    talk.propose(request_for(_tokens(talk, 12), 0))
    first = next(token_id for token_id in talk.text if token_id != talk.text[0])
    other = HashedTokens((first, *talk.text[1:14]))
    _expect_sync(talk, other, 12, most=0, when="where the hash names another text")
    _expect_context(talk.propose(request_for(other, 0)), other)


def _rewinds(talk: Talk) -> None:
    talk.open("s")
    talk.propose(request_for(_tokens(talk, 30), 0))
    branched = HashedTokens((*talk.text[:20], *talk.text[40:43]))
    _expect_context(talk.propose(request_for(branched, 20)), branched)
    shorter = _tokens(talk, 16)
    _expect_context(talk.propose(request_for(shorter, 16)), shorter)


def _keeps_budgets(talk: Talk) -> None:
    for index, (sampling, rule) in enumerate(_KINDS):
        talk.open("s", sampling=sampling, rule=rule, seed=index)
        tokens, base = _tokens(talk, 24), 0
        for budget in _BUDGETS:
            talk.propose(request_for(tokens, base, budget=budget))
            base = len(tokens)
            tokens.extend(talk.text[base : base + 2])


def _only_syncs_on_zero(talk: Talk) -> None:
    talk.open("s")
    tokens = _tokens(talk, 24)
    proposal = talk.propose(request_for(tokens, 0, budget=DraftBudget(0, 0)))
    if len(proposal.tree):
        raise BrokenError(f"{len(proposal.tree)} tokens were proposed where none was asked for")
    _expect_context(proposal, tokens)
    tokens.extend(talk.text[24:25])
    _expect_context(talk.propose(request_for(tokens, 24)), tokens)


def _takes_newest(talk: Talk) -> None:
    talk.open("s")
    tokens = _tokens(talk, 20)
    talk.send(request_for(tokens, 0))
    tokens.extend(talk.text[20:23])
    talk.send(request_for(tokens, 20))
    replies = talk.replies()
    if not replies or not isinstance(replies[-1], DraftProposal):
        raise BrokenError("the newer of two requests got no proposal")
    _expect_context(replies[-1], tokens)


def _serves_forks(talk: Talk) -> None:
    talk.open("a")
    tokens = _tokens(talk, 20)
    talk.open("b", fork_of="a")
    talk.open("c", fork_of="never-opened")
    talk.send(*(request_for(tokens, 0, session=name) for name in "abc"))
    answered = sorted(reply.session for reply in talk.replies() if isinstance(reply, DraftProposal))
    if answered != ["a", "b", "c"]:
        raise BrokenError(f"of a session and two forks only {', '.join(answered) or 'none'} got a proposal")
    talk.close("a")
    tokens.extend(talk.text[30:32])
    for name in "bc":
        _expect_context(talk.propose(request_for(tokens, 20, session=name)), tokens)


def _starts_afresh(talk: Talk) -> None:
    talk.open("s")
    talk.propose(request_for(_tokens(talk, 20), 0))
    talk.open("s")
    _expect_sync(talk, _tokens(talk, 22), 20, most=0, when="after the session was opened again")


def _closes(talk: Talk) -> None:
    talk.open("s", "t")
    tokens = _tokens(talk, 20)
    talk.send(request_for(tokens, 0), request_for(tokens, 0, session="t"))
    talk.close("s", "never-opened")
    talk.close("s")
    if [reply.session for reply in talk.replies()] != ["t"]:
        raise BrokenError("after one of two sessions was closed, not just the other one was answered")
    tokens.extend(talk.text[20:21])
    _expect_sync(talk, tokens, 20, most=0, when="after the session was closed")


def _keeps_sessions_apart(talk: Talk) -> None:
    texts = {name: _tokens(talk, length) for name, length in (("a", 15), ("b", 18), ("c", 31))}
    talk.open(*texts)
    talk.send(*(request_for(tokens, 0, session=name) for name, tokens in texts.items()))
    for reply in talk.replies():
        if not isinstance(reply, DraftProposal):
            raise BrokenError(f"session {reply.session} got no proposal beside two others")
        _expect_context(reply, texts[reply.session])


CLAIMS: dict[str, Callable[[Talk], None]] = {
    "A proposal names the length and the hash of the context that it follows.": _names_context,
    "num_pending counts requests without a reply, and each request gets one.": _counts_pending,
    "A request that comes twice changes nothing.": _is_idempotent,
    "A session without tokens, or that is unknown, is answered by NeedSync(0).": _syncs_unknown,
    "A drafter that is behind says what it has, and never proposes.": _syncs_behind,
    "Where the hash names another text, nothing known is built on.": _syncs_other_text,
    "A drafter that is ahead is cut back.": _rewinds,
    "Whatever the budget, a proposal is well-formed and stays inside it.": _keeps_budgets,
    "A budget of 0 brings up to date and asks for nothing.": _only_syncs_on_zero,
    "Of two requests of a session the newer one is answered.": _takes_newest,
    "A fork is filled like any other session, and outlives the one that it names.": _serves_forks,
    "A session that is opened again starts afresh.": _starts_afresh,
    "A closed session is forgotten, and closing an unknown one is no fault.": _closes,
    "Sessions do not see each other.": _keeps_sessions_apart,
}


def violated(findings: Sequence[Finding]) -> list[Finding]:
    """Those with a contradiction."""
    return [finding for finding in findings if finding.contradiction is not None]
