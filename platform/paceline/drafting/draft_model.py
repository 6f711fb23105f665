"""Drafts from a small language model with the target's vocabulary (Leviathan et al. 2023, Chen et al. 2023)."""

import time
from collections.abc import Iterable, Sequence
from itertools import takewhile
from typing import Protocol

import torch

from paceline.core.drafts import DraftBudget, DraftOpening, DraftRefusal, DraftReply, DraftRequest
from paceline.drafting.draft_growth import DraftGrowth
from paceline.drafting.model_session import ModelSession
from paceline.drafting.queued_drafter import QueuedDrafter
from paceline.kvcache.page_pool import PagePool, PageTable
from paceline.modeling.forward_row import ForwardRow
from paceline.verification.draft_ids import DraftIds

_NEAR_TOKENS = 16  # a session that misses no more is brought up to date in its first drafting pass
_KV_RETRY_MS = 250  # when pages are short now


class DraftRunner(Protocol):
    """What a draft model needs to be run; `modeling.runner.ModelRunner` has it."""

    @property
    def pool(self) -> PagePool:
        """Pages of the K/V cache."""

    @property
    def context_length(self) -> int:
        """Longest context, in tokens."""

    def forward(self, rows: Sequence[ForwardRow]) -> torch.Tensor:
        """Run one pass; logits [sum of num_logits, vocab], rows in order."""

    def move(self, moves: Sequence[tuple[int, int]]) -> None:
        """Copy K/V from slot to slot."""


class DraftModelDrafter(QueuedDrafter[ModelSession]):
    """A causal language model as a drafter: paged K/V of its own, batched over sessions. Implements `Drafter`.

    A session never gets a draft before K/V of its whole context is there, so a period without
    speculation costs a catch-up and never acceptance. Pages of idle sessions are taken back when others need
    them; such a session is computed again, unseen from outside. Forks hold the pages of their common prompt together.
    """

    method = "draft_model"

    def __init__(
        self,
        runner: DraftRunner,
        *,
        eos_token_ids: Iterable[int],
        max_law_tokens: int = 256,
        prefill_chunk: int = 256,
        draft_ids: DraftIds | None = None,
    ) -> None:
        """Draft with ``runner``.

        ``max_law_tokens``: most ids of a law that is sent along. ``prefill_chunk``: most tokens that one unit
        of work spends on sessions that are behind. ``draft_ids``: tokens that the logits of the runner belong to, where
        those are not the whole vocabulary.
        """
        super().__init__()
        self._runner = runner
        self._eos_token_ids = frozenset(eos_token_ids)
        self._max_law_tokens = max_law_tokens
        self._prefill_chunk = prefill_chunk
        self._draft_ids = draft_ids
        self._drafted_last = False

    def open(self, openings: Sequence[DraftOpening]) -> None:
        """Make sessions known; an old session of the same name is dropped."""
        self.close([opening.session for opening in openings])
        for opening in openings:
            self._sessions.add(ModelSession(opening, PageTable(self._runner.pool, 0)))

    def _applied(self, session: ModelSession, row: DraftRequest, kept: int) -> None:  # noqa: ARG002
        self._runner.move(session.keep_committed_drafts())

    def collect(self, timeout_s: float) -> list[DraftReply]:  # noqa: ARG002 - computes, never waits
        """Do one unit of work: a prefill chunk, or the drafts of every session that is up to date."""
        replies = self._take_ready()
        if replies or not self._pending:
            return replies
        near, behind = self._split_pending()
        if behind and (not near or self._drafted_last):
            self._drafted_last = False
            return self._prefill(behind)
        self._drafted_last = True
        return self._draft(near)

    def _dropped(self, session: ModelSession) -> None:
        session.drop_cache()

    def _take_ready(self) -> list[DraftReply]:
        """Replies that need no work, refusals of what cannot be computed now included."""
        for name, row in list(self._pending.items()):
            session = self._session(name)
            if self._waits(session):
                continue
            self._share(session)
            refusal = self._admit(session, row)
            if refusal is not None:
                self._ready[name] = refusal
                del self._pending[name]
        ready, self._ready = list(self._ready.values()), {}
        return ready

    def _donor(self, session: ModelSession) -> ModelSession | None:
        """The session whose K/V a fork without any can begin with."""
        if session.num_computed or not session.opening.fork_of:
            return None
        donor = self._sessions.get(session.opening.fork_of)
        return None if donor is session else donor

    def _waits(self, session: ModelSession) -> bool:
        """Whether a fork is better served when the session before it has computed their prompt."""
        donor = self._donor(session)
        if donor is None or donor.num_missing <= 1 or session.num_missing <= _NEAR_TOKENS:
            return False
        # Only for one that is served earlier: then no two can wait for each other.
        before = takewhile(lambda name: name != session.opening.session, self._pending)
        return donor.opening.session in before

    def _share(self, session: ModelSession) -> None:
        if (donor := self._donor(session)) is not None:
            session.share_with(donor, self._runner.pool.page_size)

    def _admit(self, session: ModelSession, row: DraftRequest) -> DraftRefusal | None:
        """Reserve what the request can need, or say why not."""
        if len(session.tokens) >= self._runner.context_length:
            session.drop_cache()
            return DraftRefusal(row.session, "CONTEXT_LENGTH")
        pool = self._runner.pool
        needed = len(session.tokens) + self._limits(session).max_nodes
        if pool.pages_for(needed) > pool.num_pages:
            session.drop_cache()
            return DraftRefusal(row.session, "KV_FULL")
        idle = (other for other in self._sessions if other.opening.session not in self._pending)
        for victim in sorted(idle, key=lambda other: other.last_use):
            if session.table.can_grow(needed):
                break
            victim.drop_cache()
        if not session.table.can_grow(needed):
            return DraftRefusal(row.session, "KV_FULL", _KV_RETRY_MS)
        session.table.grow(needed)
        return None

    def _split_pending(self) -> tuple[list[ModelSession], list[ModelSession]]:
        """Sessions that can draft in the next pass, and those that have to catch up first."""
        near: list[ModelSession] = []
        behind: list[ModelSession] = []
        for name in self._pending:
            session = self._session(name)
            if self._waits(session):
                continue
            is_near = self._limits(session).max_depth > 0 and session.num_missing <= _NEAR_TOKENS
            (near if is_near else behind).append(session)
        return near, behind

    def _limits(self, session: ModelSession) -> DraftBudget:
        budget = self._pending[session.opening.session].budget
        return session.draft_limits(budget, self._runner.context_length)

    def _prefill(self, sessions: Sequence[ModelSession]) -> list[DraftReply]:
        """Compute one chunk, oldest requests first; answers sessions that wanted no more than that."""
        left = self._prefill_chunk
        rows: list[tuple[ModelSession, ForwardRow]] = []
        for session in sessions:
            # A session that will draft keeps its last token for the pass that needs its logits.
            wanted = session.num_missing - (1 if self._limits(session).max_depth else 0)
            if chunk := min(left, wanted):
                rows.append((session, session.context_row(num_logits=0, max_tokens=chunk)))
                left -= chunk
        if rows:
            self._runner.forward([row for _, row in rows])
        for session, row in rows:
            session.mark_computed(row)
        return [self._answer_empty(s) for s in sessions if not s.num_missing and not self._limits(s).max_depth]

    def _draft(self, sessions: Sequence[ModelSession]) -> list[DraftReply]:
        """Draft for all ``sessions`` together, one level a pass."""
        started = time.monotonic()
        growths = [self._start(session) for session in sessions]
        active = growths
        while active:
            rows = [growth.next_row() for growth in active]
            logits, start = self._runner.forward(rows), 0
            for growth, row in zip(active, rows, strict=True):
                growth.grow(row, logits[start : start + row.num_logits])
                start += row.num_logits
            active = [growth for growth in active if not growth.done]
        for session in sessions:
            del self._pending[session.opening.session]
        draft_ms = (time.monotonic() - started) * 1e3
        return [growth.proposal(draft_ms) for growth in growths]

    def _start(self, session: ModelSession) -> DraftGrowth:
        return DraftGrowth(
            session,
            session.sampler(self._eos_token_ids),
            limits=self._limits(session),
            end_token_ids=session.end_token_ids(self._eos_token_ids),
            max_law_tokens=self._max_law_tokens,
            draft_ids=self._draft_ids,
        )
