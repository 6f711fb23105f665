"""What the engine knows about one sequence's session at its drafter."""

from dataclasses import dataclass, field

from paceline.core.drafts import DraftBudget, DraftOpening, DraftProposal, DraftRequest, DrawRule
from paceline.engine.acceptance import AcceptanceEstimate
from paceline.engine.feature_feed import FeatureFeed
from paceline.engine.sequence import Sequence

_ASKED_MEMORY = 16  # newest requests of a session whose replies are still recognised
_NOTHING = DraftBudget(0, 0)


@dataclass(slots=True)
class Ask:
    """One request for drafts that has no reply yet."""

    depth: int
    at: float  # when it was sent, monotonic seconds
    size: int = 0  # draft tokens of the whole message; 0: its reply time says nothing about later ones
    counted: bool = False  # as a miss


@dataclass(slots=True, eq=False)
class SessionLedger:
    """Book-keeping of one session; the tokens themselves stay with the sequence."""

    name: str
    group: str
    sequence: Sequence
    acceptance: AcceptanceEstimate
    shadow: bool = False  # proposes for comparison only: the sequence does not use this group
    sent_length: int = 0  # tokens that were sent; the drafter may have lost them
    syncing: bool = False  # more is committed than was sent: it goes out piece by piece, with its features
    opened: bool = False
    warm: bool = False  # the drafter has answered since the session was woken, so it has computed the context
    active: bool | None = None  # whether the last round could speculate; None before the first
    awake_since: int = 0  # output tokens when it could speculate again
    budget: DraftBudget = _NOTHING  # of the newest request
    outstanding: bool = False  # the newest request has no answer yet
    probing: bool = False  # the newest request was for comparison only
    newest: Ask | None = None  # request for drafts
    asks: dict[int, Ask] = field(default_factory=dict)  # by context length, newest last
    in_vain: bool = False  # a pass waited for this row, and no reply has come since
    left_out_at: float | None = None  # of the last pass, because its reply was expected; monotonic seconds
    rounds_cut: int = 0  # in a row, in which not all drafts that it might ask for paid
    resends: int = 0  # of the newest request, after NEED_SYNC
    paused_until: float = 0.0  # monotonic seconds; the drafter refused until then
    proposal: DraftProposal | None = None  # ready, not used yet
    proposal_base: int = 0  # context length that it was drafted for, before any re-rooting
    watched: DraftProposal | None = None  # being compared with what is committed
    seen_tested: int = 0  # of `sequence.tested`, at the last look
    seen_accepted: int = 0

    @property
    def awaits_reply(self) -> bool:
        """Whether the newest request has no answer yet, if it was for drafts to be used."""
        return self.outstanding and self.budget.max_depth > 0 and not self.probing

    def opening(self, rule: DrawRule) -> DraftOpening:
        """The session as the drafter should open it; further choices share the prompt of the first one."""
        request, choice = self.sequence.request, self.sequence.choice
        return DraftOpening(
            session=self.name,
            sampling=request.sampling,
            seed=request.seed,
            choice=choice,
            rule=rule,
            prompt_tokens=self.sequence.num_prompt,
            tenant_salt=request.tenant_salt,
            traceparent=request.traceparent,
            fork_of=session_name(self.sequence.key, 0) if choice and not self.shadow else "",
        )

    def ask(
        self,
        budget: DraftBudget,
        *,
        deadline_ms: int,
        now: float,
        probe: bool = False,
        feed: FeatureFeed | None = None,
    ) -> DraftRequest | None:
        """The next request: everything committed since the last one, and a proposal within ``budget``.

        Where features go along (``feed``) and that is too much for one row, it is the next piece, and only the last
        one asks for a proposal. None: nothing can be sent yet.
        """
        self.budget = budget
        self.probing = probe
        self.resends = self.resends if self.syncing else 0
        self.proposal = None
        request = self.row_from(self.sent_length, deadline_ms, feed)
        if request is None:
            return None
        self.outstanding = True
        if request.budget.max_depth:
            self.asks.pop(request.context_length, None)
            self.asks[request.context_length] = self.newest = Ask(budget.max_depth, now)
            if len(self.asks) > _ASKED_MEMORY:
                del self.asks[next(iter(self.asks))]
        return request

    def row_from(self, base_length: int, deadline_ms: int, feed: FeatureFeed | None) -> DraftRequest | None:
        """A request that assumes the drafter to have ``[0, base_length)``; None: with features none can be made yet."""
        tokens = self.sequence.tokens
        reach = len(tokens) if feed is None else feed.reach(self.sequence, base_length)
        self.sent_length = stop = max(base_length, reach)
        self.syncing = stop < len(tokens)
        if self.syncing:
            self.budget = _NOTHING
            if stop == base_length:
                return None
        return DraftRequest(
            session=self.name,
            base_length=base_length,
            base_hash=tokens.hash_at(base_length),
            new_token_ids=tokens.slice(base_length, stop),
            budget=self.budget,
            deadline_ms=deadline_ms,
            features=feed.read(self.sequence, base_length, stop) if feed is not None else None,
        )

    def answered(self, base_length: int) -> Ask | None:
        """The request that a proposal for ``base_length`` tokens answers; it and older ones are settled."""
        ask = self.asks.get(base_length)
        if ask is not None:
            self.asks = {length: later for length, later in self.asks.items() if length > base_length}
        return ask

    def overdue(self) -> bool:
        """Whether a request has newly become pointless: all that it asked for was committed without a reply."""
        length = len(self.sequence.tokens)
        late = [ask for base, ask in self.asks.items() if length - base >= ask.depth and not ask.counted]
        for ask in late:
            ask.counted = True
        return bool(late)

    def learn(self) -> None:
        """Note what the rounds since the last look said about acceptance."""
        sequence = self.sequence
        tested, accepted = sequence.tested - self.seen_tested, sequence.accepted - self.seen_accepted
        self.seen_tested, self.seen_accepted = sequence.tested, sequence.accepted
        if tested:
            self.acceptance.note(tested, accepted)


def session_name(key: str, choice: int) -> str:
    """Name of a choice's session at the drafter that it uses."""
    return f"{key}#{choice}"
