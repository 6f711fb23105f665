"""The engine's side of a dialogue with a drafter, for whoever checks one."""

import time
from collections.abc import Callable, Sequence
from typing import TypeVar

from paceline.core.drafts import (
    DraftBudget,
    DraftOpening,
    DraftProposal,
    DraftRefusal,
    DraftReply,
    DraftRequest,
    DrawRule,
    NeedSync,
)
from paceline.core.hashed_tokens import HashedTokens
from paceline.core.sampling_params import SamplingParams
from paceline.drafting.drafter import Drafter
from paceline.rpc.draft_checks import fault_of

_REPLY_TIMEOUT_S = 20.0
_FAULTS = {
    "token_id": "a token id that the target does not have",
    "parent": "parents that make no tree",
    "order": "nodes that are not in breadth-first order",
    "sibling": "the same token twice below one node",
    "budget": "more nodes, depth or children than were asked for",
    "law_count": "another number of laws than of drafts",
    "law": "a law that is no distribution, or does not hold its own draft",
    "sibling_law": "unequal laws below one node",
}
_GREEDY = SamplingParams(temperature=0.0)

T = TypeVar("T")


class BrokenError(Exception):
    """A drafter did what no drafter may do; the message says what was seen."""


class Talk:
    """Speaks to one drafter. Whatever it raises, and every reply that cannot be right, is a `BrokenError`."""

    def __init__(self, drafter: Drafter, text: Sequence[int], *, vocab_size: int) -> None:
        """``text``: token ids to build contexts from, 64 or more."""
        self.text = tuple(text)
        self._drafter = drafter
        self._vocab_size = vocab_size
        self._asked: dict[str, DraftRequest] = {}  # newest request of each session that may be answered
        self._opened: set[str] = set()

    def open(
        self,
        *sessions: str,
        sampling: SamplingParams = _GREEDY,
        rule: DrawRule = DrawRule.COUPLED,
        seed: int = 7,
        fork_of: str = "",
    ) -> None:
        """Open sessions whose prompt is the first half of the text."""
        openings = [DraftOpening(name, sampling, seed, 0, rule, prompt_tokens=8, fork_of=fork_of) for name in sessions]
        self._opened.update(sessions)
        for name in sessions:
            self._asked.pop(name, None)
        self._call("open", lambda: self._drafter.open(openings))

    def close(self, *sessions: str) -> None:
        """Close sessions."""
        for name in sessions:
            self._asked.pop(name, None)
        self._call("close", lambda: self._drafter.close(list(sessions)))

    def close_all(self) -> None:
        """Close whatever was opened."""
        opened, self._opened = sorted(self._opened), set()
        self.close(*opened)

    def send(self, *requests: DraftRequest) -> None:
        """Send requests together."""
        self._asked.update({request.session: request for request in requests})
        self._call("request", lambda: self._drafter.request(list(requests)))

    def collect(self) -> list[DraftReply]:
        """What is ready at this moment."""
        return [self._checked(reply) for reply in self._call("collect", lambda: list(self._drafter.collect(0.02)))]

    def replies(self) -> list[DraftReply]:
        """All replies that are due."""
        collected: list[DraftReply] = []
        give_up_at = time.monotonic() + _REPLY_TIMEOUT_S
        while self.num_pending:
            if time.monotonic() > give_up_at:
                raise BrokenError(
                    f"num_pending is {self.num_pending} after {_REPLY_TIMEOUT_S:.0f} s, and no reply came"
                )
            collected += self.collect()
        return collected

    def ask(self, request: DraftRequest) -> DraftReply:
        """The one reply to a request."""
        self.send(request)
        replies = self.replies()
        if len(replies) != 1:
            raise BrokenError(f"one request got {len(replies)} replies")
        return replies[0]

    def propose(self, request: DraftRequest) -> DraftProposal:
        """The proposal for a request that nothing is wrong with."""
        reply = self.ask(request)
        if not isinstance(reply, DraftProposal):
            raise BrokenError(f"a request with all its tokens got {_named(reply)}")
        return reply

    @property
    def num_pending(self) -> int:
        """Requests without a reply."""
        return self._call("num_pending", lambda: self._drafter.num_pending)

    def _call(self, name: str, call: Callable[[], T]) -> T:
        try:
            return call()
        except Exception as error:
            raise BrokenError(f"{name} raised {type(error).__name__}: {error}") from error

    def _checked(self, reply: object) -> DraftReply:
        if not isinstance(reply, DraftProposal | NeedSync | DraftRefusal):
            raise BrokenError(
                f"collect gave {type(reply).__name__}: replies are DraftProposal, NeedSync or DraftRefusal"
            )
        request = self._asked.get(reply.session)
        if request is None:
            raise BrokenError(f"a reply names session '{reply.session}', which has no open request")
        if isinstance(reply, DraftProposal):
            self._check_proposal(reply, request)
        return reply

    def _check_proposal(self, proposal: DraftProposal, request: DraftRequest) -> None:
        fault = fault_of(proposal, budget=request.budget, vocabulary_size=self._vocab_size)
        if fault is not None:
            raise BrokenError(f"a proposal has {_FAULTS[fault]} (budget: {_budget_text(request.budget)})")


def request_for(
    tokens: HashedTokens, base_length: int, *, session: str = "s", budget: DraftBudget | None = None
) -> DraftRequest:
    """A request that assumes the drafter to have ``[0, base_length)`` of ``tokens``."""
    budget = budget or DraftBudget(4, 4)
    return DraftRequest(session, base_length, tokens.hash_at(base_length), tokens.slice(base_length), budget)


def _named(reply: DraftReply) -> str:
    match reply:
        case NeedSync():
            return f"NeedSync({reply.from_length})"
        case DraftRefusal():
            return f"a refusal: {reply.reason}"
        case DraftProposal():
            return "a proposal"


def _budget_text(budget: DraftBudget) -> str:
    return f"depth {budget.max_depth}, nodes {budget.max_nodes}, top_k {budget.top_k}"
