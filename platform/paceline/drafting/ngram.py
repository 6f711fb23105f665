"""Drafts from the text itself: what followed the last tokens when they stood there before.

Prompt lookup decoding (Saxena 2023) with the longest matching suffix, as in suffix decoding (Oliaro et al. 2024).
"""

import time
from collections.abc import Sequence

from paceline.core.drafts import (
    DraftBudget,
    DraftOpening,
    DraftProposal,
    DraftReply,
    DraftRequest,
    DraftTree,
    NeedSync,
)
from paceline.drafting.ngram_index import NgramIndex
from paceline.drafting.ngram_trie import merged_tree
from paceline.drafting.sessions import DraftSession, SessionTable

_MAX_CONTINUATIONS = 32  # that are merged into one tree; bounds the work in repetitive text


class _NgramSession(DraftSession):
    """A session with the index of its tokens."""

    def __init__(self, opening: DraftOpening, index: NgramIndex) -> None:
        super().__init__(opening)
        self.index = index

    def apply(self, row: DraftRequest) -> NeedSync | int:
        kept = super().apply(row)
        if not isinstance(kept, NeedSync):
            self.index.truncate(kept)
            self.index.extend(self.tokens.slice(kept))
        return kept


class NgramDrafter:
    """Prompt lookup over prompt and output, one chain or tree per session. Implements `Drafter`.

    Its drafts are no draws: proposals carry no laws and count as one-hot.
    """

    method = "ngram"
    live = True
    detail = ""

    def __init__(self, *, min_match: int = 2, max_match: int = 8) -> None:
        """Match suffixes of ``max_match`` down to ``min_match`` tokens."""
        self._min_match = min_match
        self._max_match = max_match
        self._sessions: SessionTable[_NgramSession] = SessionTable()
        self._pending: dict[str, DraftRequest | NeedSync] = {}

    def open(self, openings: Sequence[DraftOpening]) -> None:
        """Make sessions known; an old session of the same name is dropped."""
        for opening in openings:
            self._pending.pop(opening.session, None)
            index = NgramIndex(min_match=self._min_match, max_match=self._max_match)
            self._sessions.add(_NgramSession(opening, index))

    def request(self, rows: Sequence[DraftRequest]) -> None:
        """Bring sessions up to date; the proposals come from `collect`."""
        for row in rows:
            outcome = self._sessions.apply(row)
            self._pending[row.session] = outcome if isinstance(outcome, NeedSync) else row

    def collect(self, timeout_s: float) -> list[DraftReply]:  # noqa: ARG002 - nothing to wait for
        """Answer every pending request."""
        pending, self._pending = self._pending, {}
        return [row if isinstance(row, NeedSync) else self._propose(row) for row in pending.values()]

    @property
    def num_pending(self) -> int:
        """Requests that have no reply yet."""
        return len(self._pending)

    def close(self, sessions: Sequence[str]) -> None:
        """Drop sessions; unknown ones are ignored."""
        self._sessions.pop(sessions)
        for name in sessions:
            self._pending.pop(name, None)

    def _propose(self, row: DraftRequest) -> DraftReply:
        started = time.monotonic()
        session = self._sessions.get(row.session)
        if session is None:
            return NeedSync(row.session, 0)
        return DraftProposal(
            session=row.session,
            base_length=len(session.tokens),
            base_hash=session.context_hash,
            tree=_tree(session.index, row.budget),
            draft_ms=(time.monotonic() - started) * 1e3,
        )


def _tree(index: NgramIndex, budget: DraftBudget) -> DraftTree:
    """A chain at ``top_k`` 1: what followed the newest of the longest matches."""
    depth = min(budget.max_depth, budget.max_nodes)
    if budget.top_k <= 1:
        return DraftTree.chain(next((found.token_ids for found in index.continuations(depth, 1)), ()))
    return merged_tree(index.continuations(depth, _MAX_CONTINUATIONS), budget)
