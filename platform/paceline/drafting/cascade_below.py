"""The level below in a cascade, and what it was told: the committed text and the provisional tokens behind it."""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import NamedTuple

from paceline.core.drafts import (
    DraftBudget,
    DraftOpening,
    DraftProposal,
    DraftReply,
    DraftRequest,
    DraftTree,
    DrawRule,
    NeedSync,
)
from paceline.core.hashed_tokens import HashedTokens
from paceline.drafting.drafter import Drafter

_MAX_UNITS = 1000  # calls of `collect` for one question: a level that idles cannot hold up the cascade


class Question(NamedTuple):
    """A session's context, of which the level below should propose the continuation."""

    session: str
    tokens: HashedTokens  # committed
    provisional: tuple[int, ...]  # behind them; only the level above has decided on these
    budget: DraftBudget


class LevelBelow:
    """Asks a drafter about texts that may still be taken back.

    The drafter hears of provisional tokens as of any others, and is cut back by the next request where they were
    wrong. Its answers are untrusted: one that does not fit is passed over, which costs agreement and nothing else.
    """

    def __init__(self, drafter: Drafter, *, vocab_size: int) -> None:
        self._drafter = drafter
        self._vocab_size = vocab_size
        self._openings: dict[str, DraftOpening] = {}
        self._told: dict[str, HashedTokens] = {}  # what the drafter has, if it has lost nothing

    def open(self, openings: Sequence[DraftOpening]) -> None:
        """Make sessions known."""
        below = [_below(opening) for opening in openings]
        for opening in below:
            self._openings[opening.session] = opening
            self._told[opening.session] = HashedTokens()
        self._drafter.open(below)

    def close(self, sessions: Iterable[str]) -> None:
        """Drop sessions; unknown ones are ignored."""
        known = [name for name in sessions if self._openings.pop(name, None) is not None]
        for name in known:
            del self._told[name]
        if known:
            self._drafter.close(known)

    def work(self) -> None:
        """One unit of what was told without asking for drafts; its answers say nothing."""
        if self._drafter.num_pending:
            self._drafter.collect(0.0)

    def tell(self, questions: Sequence[Question]) -> None:
        """Bring sessions up to date, and ask for what their budgets allow."""
        if questions:
            self._drafter.request([self._row(question) for question in questions])

    def ask(self, questions: Sequence[Question]) -> dict[str, DraftTree]:
        """A tree for each session that got a usable answer."""
        waiting = {question.session: question for question in questions if question.budget.max_depth > 0}
        self.tell(list(waiting.values()))
        resent: set[str] = set()
        trees: dict[str, DraftTree] = {}
        for _ in range(_MAX_UNITS):
            if not waiting or not self._drafter.num_pending:
                break
            for reply in self._drafter.collect(0.0):
                question = waiting.get(reply.session)
                if question is None:
                    continue
                if isinstance(reply, NeedSync) and reply.session not in resent:
                    resent.add(reply.session)
                    self._resend(question, reply.from_length)
                    continue
                if isinstance(reply, DraftProposal) and self._is_stale(reply):
                    continue  # of an earlier question; the answer to this one is still to come
                del waiting[reply.session]
                if (tree := self._tree(reply, question.budget)) is not None:
                    trees[reply.session] = tree
        return trees

    def _row(self, question: Question) -> DraftRequest:
        told, tokens = self._told[question.session], question.tokens
        base_length = _common_prefix(told, tokens)
        new_token_ids = (*tokens.slice(base_length), *question.provisional)
        told.truncate(base_length)
        told.extend(new_token_ids)
        return DraftRequest(question.session, base_length, tokens.hash_at(base_length), new_token_ids, question.budget)

    def _resend(self, question: Question, from_length: int) -> None:
        """The drafter has lost tokens, or the whole session."""
        told = self._told[question.session]
        if not 0 < from_length <= len(told):
            from_length = 0
            self._drafter.open([self._openings[question.session]])
        told.truncate(from_length)
        self._drafter.request([self._row(question)])

    def _is_stale(self, reply: DraftProposal) -> bool:
        told = self._told[reply.session]
        return (reply.base_length, reply.base_hash) != (len(told), told.hash_at(len(told)))

    def _tree(self, reply: DraftReply, budget: DraftBudget) -> DraftTree | None:
        if not isinstance(reply, DraftProposal):
            return None
        tree = reply.tree
        fits = 0 < len(tree) <= budget.max_nodes and tree.is_valid and max(tree.depths) <= budget.max_depth
        ids_fit = all(0 <= token_id < self._vocab_size for token_id in tree.token_ids)
        return tree if fits and ids_fit else None


def _below(opening: DraftOpening) -> DraftOpening:
    """The session as the level below opens it.

    Where drafts are drawn, the noise of one level must tell nothing about that of another, and a draw that was looked
    at once must not be made again. The level below then draws nothing: it names its likeliest tokens.
    """
    if opening.rule is DrawRule.COUPLED:
        return opening
    return replace(opening, rule=DrawRule.COUPLED, sampling=replace(opening.sampling, temperature=0.0))


def _common_prefix(one: HashedTokens, other: HashedTokens) -> int:
    """Leading tokens that are equal, found by the hashes of prefixes."""
    low, high = 0, min(len(one), len(other))
    while low < high:
        middle = (low + high + 1) // 2
        if one.hash_at(middle) == other.hash_at(middle):
            low = middle
        else:
            high = middle - 1
    return low
