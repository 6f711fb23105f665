"""A drafter of a given acceptance, to measure what drafts of some quality would be worth."""

import random
from collections.abc import Sequence

from paceline.core.drafts import DraftOpening, DraftProposal, DraftReply, DraftRequest, DraftTree, NeedSync
from paceline.drafting.sessions import DraftSession, SessionTable


class OracleDrafter:
    """Drafts chains for a target that always says ``token_id``; each draft is right with probability ``alpha``.

    It costs next to nothing itself, so that the target's side alone is measured.
    """

    method = "oracle"
    live = True
    detail = ""

    def __init__(self, token_id: int, *, alpha: float, seed: int = 0) -> None:
        self.alpha = alpha
        self._token_id = token_id
        self._random = random.Random(seed)
        self._sessions: SessionTable[DraftSession] = SessionTable()
        self._pending: dict[str, DraftReply] = {}

    def open(self, openings: Sequence[DraftOpening]) -> None:
        """Make sessions known."""
        for opening in openings:
            self._sessions.add(DraftSession(opening))

    def request(self, rows: Sequence[DraftRequest]) -> None:
        """Bring sessions up to date and propose at once."""
        for row in rows:
            outcome = self._sessions.apply(row)
            self._pending[row.session] = outcome if isinstance(outcome, NeedSync) else self._propose(row)

    def collect(self, timeout_s: float) -> list[DraftReply]:  # noqa: ARG002 - everything is ready
        """All replies."""
        replies = list(self._pending.values())
        self._pending.clear()
        return replies

    @property
    def num_pending(self) -> int:
        """Replies that nobody has collected."""
        return len(self._pending)

    def close(self, sessions: Sequence[str]) -> None:
        """Drop sessions."""
        self._sessions.pop(sessions)
        for name in sessions:
            self._pending.pop(name, None)

    def _propose(self, row: DraftRequest) -> DraftProposal:
        session = self._sessions.get(row.session)
        if session is None:
            raise KeyError(row.session)
        count = min(row.budget.max_depth, row.budget.max_nodes)
        wrong = self._token_id - 1 if self._token_id else 1
        chain = tuple(self._token_id if self._random.random() < self.alpha else wrong for _ in range(count))
        return DraftProposal(row.session, len(session.tokens), session.context_hash, DraftTree.chain(chain))


def expected_tau(alpha: float, num_drafts: int) -> float:
    """Tokens per pass with ``num_drafts`` drafts of acceptance ``alpha`` each (Leviathan 2023, equation 1)."""
    return float(sum(alpha**i for i in range(num_drafts + 1)))
