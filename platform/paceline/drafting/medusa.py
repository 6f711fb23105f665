"""Drafts from Medusa heads (Cai et al. 2024): all depths at once from the newest feature."""

import time
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import NamedTuple

import torch

from paceline.core.drafts import DraftBudget, DraftOpening, DraftReply, DraftRequest, FeatureBlock
from paceline.drafting.drawing_session import DrawingSession
from paceline.drafting.fixed_shape import fixed_shape
from paceline.drafting.head_growth import ParallelGrowth
from paceline.drafting.page_lender import PageLender
from paceline.drafting.queued_drafter import QueuedDrafter
from paceline.drafting.static_tree import StaticTree
from paceline.modeling.feature_store import FeatureStore
from paceline.modeling.medusa_runner import MedusaRunner
from paceline.verification.draft_ids import DraftIds


class LentFeatures(NamedTuple):
    """Where a target of this process keeps its features."""

    lender: PageLender
    store: FeatureStore


class MedusaSession(DrawingSession):
    """One sequence at Medusa heads: its tokens, and the feature of the newest."""

    def __init__(self, opening: DraftOpening) -> None:
        super().__init__(opening)
        self._feature: torch.Tensor | None = None  # [hidden]
        self._holder = (0, 0)  # length and hash of the context whose newest token it belongs to

    @property
    def feature(self) -> torch.Tensor | None:
        """``[hidden]`` of the newest token, if it is known."""
        return self._feature if self._holder == (len(self.tokens), self.context_hash) else None

    def take_feature(self, block: FeatureBlock | None) -> None:
        """Keep what came with the newest token."""
        if block is not None and block.count:
            rows = torch.frombuffer(bytearray(block.data), dtype=torch.bfloat16).view(block.count, -1)
            self._feature, self._holder = rows[-1], (len(self.tokens), self.context_hash)

    def read_feature(self, source: LentFeatures) -> None:
        """Look where the target has computed the token before the newest; without pages there is none."""
        table, length = source.lender.table_of(self.opening.session), len(self.tokens)
        if length < 2 or table is None:
            return
        slots = torch.tensor(table.slots(length - 2, length - 1), device=source.store.device)
        self._feature, self._holder = source.store.read(slots)[0], (length, self.context_hash)


class MedusaDrafter(QueuedDrafter[MedusaSession]):
    """Heads on the newest feature, a sparse static tree. Implements `Drafter`.

    Heads know nothing of each other's choices, so all nodes of a depth share one ranking. A session that comes without
    the feature of its newest token gets no drafts.
    """

    method = "medusa"

    def __init__(
        self,
        runner: MedusaRunner,
        *,
        eos_token_ids: Iterable[int],
        tree: StaticTree | None = None,
        source: LentFeatures | None = None,
        max_law_tokens: int = 256,
    ) -> None:
        """Draft with ``runner`` along ``tree``, or along one that suits most heads.

        ``source``: the target of this process; without it features come with the tokens. ``max_law_tokens``: most
        ids of a law that is sent along.
        """
        super().__init__()
        self._runner = runner
        self._tree = tree
        self._source = source
        self._eos_token_ids = frozenset(eos_token_ids)
        self._max_law_tokens = max_law_tokens
        ids = runner.spec.draft_token_ids
        self._draft_ids = None if ids is None else DraftIds(ids, device=runner.device)

    def open(self, openings: Sequence[DraftOpening]) -> None:
        """Make sessions known; an old session of the same name is dropped."""
        self.close([opening.session for opening in openings])
        for opening in openings:
            self._sessions.add(MedusaSession(opening))

    def collect(self, timeout_s: float) -> list[DraftReply]:  # noqa: ARG002 - computes, never waits
        """Answer all requests: one pass of all heads for all sessions."""
        started = time.monotonic()
        replies, self._ready = list(self._ready.values()), {}
        drafting: list[tuple[MedusaSession, torch.Tensor]] = []
        for name in list(self._pending):
            session = self._session(name)
            if not self._limits(session).max_depth:
                replies.append(self._answer_empty(session))
                continue
            if self._source is not None:
                session.read_feature(self._source)
            if session.feature is None:
                replies.append(self._answer_empty(session))
            else:
                drafting.append((session, session.feature))
        if not drafting:
            return replies
        logits = self._runner.forward(torch.stack([feature for _, feature in drafting]))
        growths = [self._grown(session, logits[:, place]) for place, (session, _) in enumerate(drafting)]
        for session, _ in drafting:
            del self._pending[session.opening.session]
        draft_ms = (time.monotonic() - started) * 1e3
        return [*replies, *(growth.proposal(draft_ms) for growth in growths)]

    def _applied(self, session: MedusaSession, row: DraftRequest, kept: int) -> None:  # noqa: ARG002
        session.take_feature(row.features)

    def _limits(self, session: MedusaSession) -> DraftBudget:
        budget, spec = self._pending[session.opening.session].budget, self._runner.spec
        budget = replace(budget, max_depth=min(budget.max_depth, spec.num_modules))
        return session.draft_limits(budget, spec.context_length)

    def _grown(self, session: MedusaSession, logits: torch.Tensor) -> ParallelGrowth:
        limits = self._limits(session)
        find = fixed_shape if self._tree is None else self._tree.shape
        growth = ParallelGrowth(
            session,
            session.sampler(self._eos_token_ids),
            limits=limits,
            end_token_ids=session.end_token_ids(self._eos_token_ids),
            max_law_tokens=self._max_law_tokens,
            draft_ids=self._draft_ids,
            shape=find(limits.max_depth, limits.max_nodes, limits.top_k),
        )
        growth.fill(logits)
        return growth
