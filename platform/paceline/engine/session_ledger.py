"""What the engine knows about one sequence's session at its drafter."""

from dataclasses import dataclass

from paceline.core.drafts import DraftBudget, DraftOpening, DraftProposal, DraftRequest, DrawRule
from paceline.engine.sequence import Sequence


@dataclass(slots=True, eq=False)
class SessionLedger:
    """Book-keeping of one session; the tokens themselves stay with the sequence."""

    name: str
    group: str
    sequence: Sequence
    sent_length: int = 0  # tokens that were sent; the drafter may have lost them
    opened: bool = False
    active: bool | None = None  # whether the last round could speculate; None before the first
    asked_depth: int = 0  # of the newest request
    outstanding: bool = False  # the newest request has no answer yet
    waited: bool = False  # the last step waited for this row in vain
    resends: int = 0  # of the newest request, after NEED_SYNC
    paused_until: float = 0.0  # monotonic seconds; the drafter refused until then
    proposal: DraftProposal | None = None  # ready, not used yet
    proposal_base: int = 0  # context length that it was drafted for, before any re-rooting

    @property
    def awaits_reply(self) -> bool:
        """Whether nothing usable has come yet for the newest request."""
        return self.outstanding and self.proposal is None

    def opening(self, rule: DrawRule) -> DraftOpening:
        """The session as the drafter should open it."""
        request = self.sequence.request
        return DraftOpening(
            session=self.name,
            sampling=request.sampling,
            seed=request.seed,
            choice=self.sequence.choice,
            rule=rule,
            prompt_tokens=self.sequence.num_prompt,
            tenant_salt=request.tenant_salt,
            traceparent=request.traceparent,
        )

    def ask(self, depth: int, deadline_ms: int) -> DraftRequest:
        """The next request: everything committed since the last one, and a proposal of ``depth``."""
        request = self.row_from(self.sent_length, depth, deadline_ms)
        self.asked_depth = depth
        self.outstanding = True
        self.resends = 0
        self.proposal = None
        return request

    def row_from(self, base_length: int, depth: int, deadline_ms: int) -> DraftRequest:
        """A request that assumes the drafter to have ``[0, base_length)``."""
        tokens = self.sequence.tokens
        self.sent_length = len(tokens)
        return DraftRequest(
            session=self.name,
            base_length=base_length,
            base_hash=tokens.hash_at(base_length),
            new_token_ids=tokens.slice(base_length),
            budget=DraftBudget(max_depth=depth, max_nodes=depth),
            deadline_ms=deadline_ms,
        )
