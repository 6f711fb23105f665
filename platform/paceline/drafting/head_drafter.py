"""Drafts from EAGLE heads and MTP modules, in the target's process or away from it."""

import time
from collections.abc import Iterable, Sequence
from dataclasses import replace

import torch

from paceline.core.drafts import DraftBudget, DraftOpening, DraftRefusal, DraftReply, DraftRequest
from paceline.drafting.head_growth import HeadGrowth, ParallelGrowth
from paceline.drafting.head_passes import ContextResult, compute_context, drafted_rows
from paceline.drafting.head_session import HeadSession
from paceline.drafting.page_lender import PageLender
from paceline.drafting.queued_drafter import QueuedDrafter
from paceline.drafting.static_tree import StaticTree
from paceline.drafting.tree_growth import TreeGrowth
from paceline.kvcache.page_pool import PageTable
from paceline.modeling.head_runner import HeadRunner
from paceline.verification.draft_ids import DraftIds

_NEAR_TOKENS = 16  # a session that misses no more is brought up to date in its first drafting pass
_KV_RETRY_MS = 250  # when pages are short now


class HeadDrafter(QueuedDrafter[HeadSession]):
    """A head over the target's features: batched over sessions, chains and dynamic trees. Implements `Drafter`.

    Inside a target it works in the target's own pages, lent for the time of a proposal, and reads features where the
    target left them. Away from it, it has pages of its own, and features come with the tokens. Everything else is the
    same: each round the head's K/V are brought up to date with true features, then it drafts on its own guesses of
    them, whose K/V are never kept.
    """

    def __init__(
        self,
        runner: HeadRunner,
        *,
        eos_token_ids: Iterable[int],
        lender: PageLender | None = None,
        max_law_tokens: int = 256,
        prefill_chunk: int = 256,
        tree: StaticTree | None = None,
    ) -> None:
        """Draft with ``runner``, in pages of ``lender`` or, without one, in its memory's own.

        ``max_law_tokens``: most ids of a law that is sent along. ``prefill_chunk``: most tokens that one unit
        of work spends on sessions that are behind. Trees are dynamic, or the best nodes of ``tree``.
        """
        super().__init__()
        self.method = runner.spec.method
        self._runner = runner
        self._lender = lender
        self._eos_token_ids = frozenset(eos_token_ids)
        self._max_law_tokens = max_law_tokens
        self._prefill_chunk = prefill_chunk
        self._tree = tree
        ids = runner.spec.draft_token_ids
        self._draft_ids = None if ids is None else DraftIds(ids, device=runner.memory.features.device)
        self._drafted_last = False

    def open(self, openings: Sequence[DraftOpening]) -> None:
        """Make sessions known; an old session of the same name is dropped."""
        self.close([opening.session for opening in openings])
        memory = self._runner.memory
        for opening in openings:
            self._sessions.add(HeadSession(opening, memory, PageTable(memory.pool, 0)))

    def collect(self, timeout_s: float) -> list[DraftReply]:  # noqa: ARG002 - computes, never waits
        """Do one unit of work: a prefill chunk, or the drafts of every session that is up to date."""
        replies = self._take_ready()
        if replies or not self._pending:
            return replies
        sessions = [self._session(name) for name in self._pending]
        behind = [session for session in sessions if not self._is_near(session)]
        near = [session for session in sessions if self._is_near(session)]
        if behind and (not near or self._drafted_last):
            self._drafted_last = False
            return self._prefill(behind)
        self._drafted_last = True
        return self._draft(near)

    def _applied(self, session: HeadSession, row: DraftRequest, kept: int) -> None:
        if self._lender is not None:
            return
        if self._make_room(session, len(session.tokens)):
            session.table.extend_to(len(session.tokens))
            session.take_features(kept, row.features)
            return
        session.forget()
        del self._pending[row.session]
        self._ready[row.session] = self._short_of_pages(row.session, row.context_length)

    def _dropped(self, session: HeadSession) -> None:
        if self._lender is None:
            session.table.free()

    def _make_room(self, session: HeadSession, num_tokens: int) -> bool:
        """Reserve room in pages of our own, those of sessions that were idle longest included."""
        if not self._could_fit(num_tokens):
            return False  # taking from others would not help
        idle = (other for other in self._sessions if other.opening.session not in self._pending)
        for victim in sorted(idle, key=lambda other: other.last_use):
            if session.table.can_grow(num_tokens):
                break
            victim.forget()
        if not session.table.can_grow(num_tokens):
            return False
        session.table.grow(num_tokens)
        return True

    def _could_fit(self, num_tokens: int) -> bool:
        pool = self._runner.memory.pool
        return pool.pages_for(num_tokens) <= pool.num_pages

    def _short_of_pages(self, name: str, num_tokens: int) -> DraftRefusal:
        """No room for ``num_tokens`` tokens now, or ever."""
        return DraftRefusal(name, "KV_FULL", _KV_RETRY_MS if self._could_fit(num_tokens) else 0)

    def _take_ready(self) -> list[DraftReply]:
        """Replies that need no work, refusals of what cannot be computed now included."""
        for name, row in list(self._pending.items()):
            session = self._session(name)
            if refusal := self._admit(session, row):
                del self._pending[name]
                self._ready[name] = refusal
            elif (self._lender is not None or not session.has_context) and not self._limits(session).max_depth:
                self._ready[name] = self._answer_empty(session)
        ready, self._ready = list(self._ready.values()), {}
        return ready

    def _admit(self, session: HeadSession, row: DraftRequest) -> DraftRefusal | None:
        """Take hold of the pages that the request needs, or say why not."""
        if len(session.tokens) >= self._runner.spec.context_length:
            return DraftRefusal(row.session, "CONTEXT_LENGTH")
        if self._lender is None:
            needed = len(session.tokens) + row.budget.max_nodes
            return None if self._make_room(session, needed) else self._short_of_pages(row.session, needed)
        if not row.budget.max_depth:
            return None  # what is missing is computed when drafts are wanted: the target has not been there yet
        table = self._lender.table_of(row.session)
        if table is None or table.num_pages < self._runner.memory.pool.pages_for(len(session.tokens) - 1):
            return DraftRefusal(row.session, "KV_FULL", _KV_RETRY_MS)
        session.table = table
        return None

    def _limits(self, session: HeadSession) -> DraftBudget:
        """What may be drafted: inside the budget, the head's positions and depths, and the pages at hand."""
        budget = self._pending[session.opening.session].budget
        if not session.has_context:
            return DraftBudget(0, 0)
        spec = self._runner.spec
        room = session.table.capacity * self._runner.memory.pool.page_size - len(session.tokens)
        depth = min(budget.max_depth, spec.num_modules) if spec.variant == "parallel" else budget.max_depth
        budget = replace(budget, max_depth=depth, max_nodes=min(budget.max_nodes, room))
        return session.draft_limits(budget, spec.context_length)

    def _is_near(self, session: HeadSession) -> bool:
        tail = session.tail
        return self._limits(session).max_depth > 0 and tail.stop - tail.start <= _NEAR_TOKENS + 1

    def _prefill(self, sessions: Sequence[HeadSession]) -> list[DraftReply]:
        """Compute one chunk, oldest requests first; answers sessions that wanted no more than that."""
        left = self._prefill_chunk
        chunks = []
        for session in sessions:
            if left and (stretch := session.missing(left)) is not None:
                chunks.append((session, stretch))
                left -= stretch.stop - stretch.start
        if chunks:
            compute_context(self._runner, chunks, wanted=False)
        done = [s for s in sessions if not self._limits(s).max_depth and s.missing(1) is None]
        return [self._answer_empty(session) for session in done]

    def _draft(self, sessions: Sequence[HeadSession]) -> list[DraftReply]:
        """Draft for all ``sessions`` together, one level a pass."""
        started = time.monotonic()
        held = [session.table.num_pages for session in sessions]
        contexts = compute_context(self._runner, [(session, session.tail) for session in sessions], wanted=True)
        growths = [self._grown(session, context) for session, context in zip(sessions, contexts, strict=True)]
        active = [growth for growth in growths if isinstance(growth, HeadGrowth) and not growth.done]
        while active:
            results = drafted_rows(self._runner, [growth.next_row() for growth in active])
            for growth, (logits, hidden) in zip(active, results, strict=True):
                growth.grow(logits, hidden)
            active = [growth for growth in active if not growth.done]
        for session, num_pages in zip(sessions, held, strict=True):
            session.table.truncate(num_pages * self._runner.memory.pool.page_size)
            del self._pending[session.opening.session]
        draft_ms = (time.monotonic() - started) * 1e3
        return [growth.proposal(draft_ms) for growth in growths]

    def _grown(self, session: HeadSession, context: ContextResult) -> TreeGrowth:
        """The first level of a tree, or all of one whose levels do not depend on each other."""
        sampler, ends = session.sampler(self._eos_token_ids), session.end_token_ids(self._eos_token_ids)
        limits = self._limits(session)
        shape = self._tree.shape(limits.max_depth, limits.max_nodes, limits.top_k) if self._tree else None
        if self._runner.spec.variant != "parallel":
            return HeadGrowth(
                session,
                sampler,
                context,
                limits=limits,
                end_token_ids=ends,
                max_law_tokens=self._max_law_tokens,
                draft_ids=self._draft_ids,
                shape=shape,
            )
        growth = ParallelGrowth(
            session,
            sampler,
            limits=limits,
            end_token_ids=ends,
            max_law_tokens=self._max_law_tokens,
            draft_ids=self._draft_ids,
            shape=shape,
        )
        growth.fill(torch.stack(context.logits))
        return growth
