"""The contract check finds nothing in drafters that work, and names what is broken in others."""

import random
from collections.abc import Callable
from dataclasses import replace

import pytest

from draft_dialogue import opening
from drafters import LyingDrafter, OracleDrafter, ScriptedDrafter, SlowDrafter
from paceline.bench.drafter_contract import CLAIMS, check_contract, violated
from paceline.bench.drafter_laws import CLAIM as LAWS
from paceline.bench.drafter_laws import check_laws
from paceline.bench.drafter_talk import Talk
from paceline.core.drafts import DraftProposal, DraftRefusal, DraftTree, NeedSync
from paceline.drafting.cascade import CascadeDrafter
from paceline.drafting.draft_model import DraftModelDrafter
from paceline.drafting.drafter import Drafter
from paceline.drafting.ngram import NgramDrafter
from paceline.drafting.sessions import DraftSession
from toy_target import ToyRunner, hashed_law

VOCAB = 11
TEXT = tuple(random.Random(1).choices(range(5), k=64))


def runner() -> ToyRunner:
    return ToyRunner(hashed_law(VOCAB), VOCAB, num_pages=4096)


def model() -> DraftModelDrafter:
    return DraftModelDrafter(runner(), eos_token_ids=(), max_law_tokens=6)


HONEST: dict[str, Callable[[], Drafter]] = {
    "ngram": lambda: NgramDrafter(min_match=1),
    "draft_model": model,
    "cascade": lambda: CascadeDrafter(runner(), NgramDrafter(), eos_token_ids=(), max_law_tokens=6),
    "oracle": lambda: OracleDrafter([TEXT]),
    "slow": lambda: SlowDrafter([TEXT], delay_s=0.003),
    "silent": ScriptedDrafter,
}


@pytest.mark.parametrize("name", HONEST)
def test_nothing_is_found_in_drafters_that_work(name: str) -> None:
    """Every claim holds for the drafters of the library."""
    talk = Talk(HONEST[name](), TEXT, vocab_size=VOCAB)

    assert violated([*check_contract(talk), check_laws(talk)]) == []


class Oracle(OracleDrafter):
    def __init__(self) -> None:
        super().__init__([TEXT])


class WrongHash(Oracle):
    def reply(self, row):
        return replace(super().reply(row), base_hash=1)


class NothingPending(Oracle):
    num_pending = 0


class AnswersTwice(Oracle):
    def collect(self, timeout_s):
        replies = super().collect(timeout_s)
        return [*replies, *replies]


class Adds(Oracle):
    """Appends whatever comes, also what it has already."""

    def request(self, rows):
        for row in rows:
            session = self.sessions.get(row.session)
            if session is not None and row.base_length < len(session.tokens):
                session.tokens.extend(row.new_token_ids)
                self._pending[row.session] = row
            else:
                super().request([row])


class Invents(Oracle):
    """Opens sessions by itself."""

    def request(self, rows):
        for row in rows:
            if self.sessions.get(row.session) is None:
                self.sessions.add(DraftSession(opening(row.session)))
        super().request(rows)


class Guesses(Oracle):
    """Proposes although it is behind."""

    def collect(self, timeout_s):
        return [
            DraftProposal(reply.session, 0, 0, DraftTree((), ())) if isinstance(reply, NeedSync) else reply
            for reply in super().collect(timeout_s)
        ]


class Boasts(Oracle):
    """Claims to have more than it has."""

    def collect(self, timeout_s):
        return [
            replace(reply, from_length=reply.from_length + 5) if isinstance(reply, NeedSync) else reply
            for reply in super().collect(timeout_s)
        ]


class Trusts(Oracle):
    """Never looks at the hash."""

    def request(self, rows):
        super().request([self._trusting(row) for row in rows])

    def _trusting(self, row):
        session = self.sessions.get(row.session)
        known = session is not None and row.base_length <= len(session.tokens)
        return replace(row, base_hash=session.tokens.hash_at(row.base_length)) if known else row


class NeverBack(Oracle):
    """Cannot be cut back."""

    def request(self, rows):
        for row in rows:
            session = self.sessions.get(row.session)
            ahead = session is not None and len(session.tokens) > row.base_length + len(row.new_token_ids)
            super().request([row])
            if ahead:
                self._pending[row.session] = NeedSync(row.session, 0)


class Greedy(Oracle):
    """Takes no notice of the budget."""

    def chain(self, context, num_tokens):
        return super().chain(context, 6)


class OldestFirst(Oracle):
    """Goes on with an older request."""

    def request(self, rows):
        super().request([row for row in rows if row.session not in self._pending])


class NoForks(Oracle):
    def open(self, openings):
        super().open([opening for opening in openings if not opening.fork_of])


class Remembers(Oracle):
    """Keeps a session that is opened again, or closed."""

    def open(self, openings):
        super().open([opening for opening in openings if self.sessions.get(opening.session) is None])


class Hoards(Oracle):
    def close(self, sessions):
        pass


class Strict(Oracle):
    def close(self, sessions):
        for name in sessions:
            if self.sessions.get(name) is None:
                raise KeyError(name)
        super().close(sessions)


class OneForAll(Oracle):
    """Keeps one text for all sessions."""

    def collect(self, timeout_s):
        replies = super().collect(timeout_s)
        first = replies[0] if replies else None
        return [
            replace(first, session=reply.session) if isinstance(reply, DraftProposal) else reply for reply in replies
        ]


class Refuses(Oracle):
    def reply(self, row):
        return DraftRefusal(row.session, "OVERLOADED")


class Raises(Oracle):
    def reply(self, row):
        raise RuntimeError("out of memory")


class Tuples(Oracle):
    def collect(self, timeout_s):
        return [(reply.session, reply) for reply in super().collect(timeout_s)]


BROKEN: dict[type[Oracle], str] = {
    WrongHash: "names the length and the hash",
    NothingPending: "num_pending counts",
    AnswersTwice: "num_pending counts",
    Adds: "comes twice",
    Invents: "unknown, is answered by NeedSync",
    Guesses: "is behind says what it has",
    Boasts: "is behind says what it has",
    Trusts: "hash names another text",
    NeverBack: "is ahead is cut back",
    Greedy: "stays inside it",
    OldestFirst: "the newer one is answered",
    NoForks: "A fork is filled",
    Remembers: "opened again starts afresh",
    Hoards: "A closed session is forgotten",
    Strict: "closing an unknown one",
    OneForAll: "do not see each other",
    Refuses: "names the length and the hash",
    Raises: "names the length and the hash",
    Tuples: "names the length and the hash",
}


@pytest.mark.parametrize("broken", BROKEN)
def test_what_is_broken_is_named(broken: type[Oracle]) -> None:
    """For every way to break the dialogue, the claim that it violates is among those that are named."""
    found = violated(check_contract(Talk(broken(), TEXT, vocab_size=VOCAB)))

    assert any(BROKEN[broken] in finding.claim for finding in found), [finding.claim for finding in found]
    assert all(finding.contradiction for finding in found)


def test_every_claim_can_be_violated() -> None:
    """No claim is there that nothing above breaks; a budget of 0 is broken by whoever ignores budgets."""
    named = {claim for claim in CLAIMS for words in BROKEN.values() if words in claim}
    ignores = violated(check_contract(Talk(Greedy(), TEXT, vocab_size=VOCAB)))

    assert CLAIMS.keys() - named == {"A budget of 0 brings up to date and asks for nothing."}
    assert "A budget of 0 brings up to date and asks for nothing." in {finding.claim for finding in ignores}


@pytest.mark.parametrize("lie", ["negative_id", "huge_id", "too_long", "wrong_parents", "missing_law", "nan_law"])
def test_proposals_that_are_none_are_named(lie: str) -> None:
    """What the link would refuse is found, and said in words."""
    found = violated(check_contract(Talk(LyingDrafter([TEXT], lie=lie, vocab_size=VOCAB), TEXT, vocab_size=VOCAB)))

    assert any(str(finding.contradiction).startswith("a proposal has") for finding in found)


class Argmax(DraftModelDrafter):
    """Sends its law, and the likeliest id instead of a draw."""

    def collect(self, timeout_s):
        return [self._changed(reply) for reply in super().collect(timeout_s)]

    def _changed(self, reply):
        if not isinstance(reply, DraftProposal) or not reply.laws:
            return reply
        ids = tuple(law.token_ids[law.probabilities.index(max(law.probabilities))] for law in reply.laws)
        return replace(reply, tree=DraftTree(ids, reply.tree.parents))


class Ashamed(Argmax):
    """Shows no draft, and none behind it, that its law finds unlikely."""

    def _changed(self, reply):
        if not isinstance(reply, DraftProposal) or not reply.laws:
            return reply
        kept = 0
        for token_id, law in zip(reply.tree.token_ids, reply.laws, strict=True):
            if law.probabilities[law.token_ids.index(token_id)] < 0.3:
                break
            kept += 1
        return replace(reply, tree=DraftTree.chain(reply.tree.token_ids[:kept]), laws=reply.laws[:kept])


@pytest.mark.parametrize("broken", [Argmax, Ashamed])
def test_draws_that_are_not_of_their_law_are_named(broken: type[DraftModelDrafter]) -> None:
    """Both are exact under `coupled`, and shift the law of the answers under `rejection`."""
    finding = check_laws(Talk(broken(runner(), eos_token_ids=(), max_law_tokens=6), TEXT, vocab_size=VOCAB))

    assert finding.claim == LAWS
    assert "standard deviations" in str(finding.contradiction)
