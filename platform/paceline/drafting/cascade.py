"""A cascade: a cheap drafter proposes, a draft model corrects it, and the target sees what the model would draft.

Vertical cascades (Chen et al. 2024, CS Drafting; Sun et al. 2024, TriForce). A cascade may itself be the level below
another, so any number of levels is this one class, stacked. It pays where the cheap level is right often enough that
the model runs fewer passes for the same drafts.
"""

import time
from collections.abc import Iterable, Sequence
from typing import Protocol

from paceline.core.drafts import DraftBudget, DraftOpening, DraftReply, DraftRequest
from paceline.drafting.cascade_below import LevelBelow, Question
from paceline.drafting.cascade_growth import NO_DRAFTS, CascadeGrowth, Correction
from paceline.drafting.draft_model import DraftModelDrafter, DraftRunner
from paceline.drafting.drafter import Drafter
from paceline.drafting.model_session import ModelSession
from paceline.telemetry import catalogue
from paceline.telemetry.metrics import Metrics
from paceline.verification.draft_ids import DraftIds


class CascadeRunner(DraftRunner, Protocol):
    """What the model of a cascade needs to be run."""

    @property
    def vocab_size(self) -> int:
        """Ids that the level below may propose."""


class CascadeDrafter(DraftModelDrafter):
    """A draft model that checks the drafts of a cheaper drafter instead of making all of its own. Implements `Drafter`.

    Its proposals are those of `DraftModelDrafter` with the same model, token by token, whatever the level below
    does; that one decides only how many passes they take.
    """

    method = "cascade"

    def __init__(
        self,
        runner: CascadeRunner,
        below: Drafter,
        *,
        eos_token_ids: Iterable[int],
        group: str = "cascade",
        level: int = 1,
        max_law_tokens: int = 256,
        prefill_chunk: int = 256,
        metrics: Metrics | None = None,
        draft_ids: DraftIds | None = None,
    ) -> None:
        """Correct what ``below`` proposes with the model of ``runner``.

        ``group`` and ``level`` (1: the second level of the cascade) label what is counted in ``metrics``.
        ``draft_ids``: tokens that the logits of the runner belong to, where those are not the whole vocabulary.
        """
        super().__init__(
            runner,
            eos_token_ids=eos_token_ids,
            max_law_tokens=max_law_tokens,
            prefill_chunk=prefill_chunk,
            draft_ids=draft_ids,
        )
        self._level_below = LevelBelow(below, vocab_size=runner.vocab_size)
        self._metrics = metrics or Metrics()
        self._labels = {"group": group, "level": str(level)}

    def open(self, openings: Sequence[DraftOpening]) -> None:
        """Make sessions known on all levels."""
        super().open(openings)
        self._level_below.open(openings)

    def request(self, rows: Sequence[DraftRequest]) -> None:
        """Bring sessions up to date; a request for no drafts does so on all levels."""
        super().request(rows)
        known = {row.session: self._sessions.get(row.session) for row in rows if not row.budget.max_depth}
        self._level_below.tell(
            [
                Question(name, session.tokens, (), DraftBudget(0, 0))
                for name, session in known.items()
                if session is not None and name in self._pending
            ]
        )

    def close(self, sessions: Sequence[str]) -> None:
        """Drop sessions on all levels."""
        super().close(sessions)
        self._level_below.close(sessions)

    def _prefill(self, sessions: Sequence[ModelSession]) -> list[DraftReply]:
        self._level_below.work()
        return super()._prefill(sessions)

    def _draft(self, sessions: Sequence[ModelSession]) -> list[DraftReply]:
        """Draft for all ``sessions`` together: each pass over what the level below proposes for those not done."""
        started = time.monotonic()
        growths = [self._growth(session) for session in sessions]
        active = growths
        while active:
            trees = self._level_below.ask([growth.question() for growth in active])
            rows = [growth.next_row(trees.get(growth.session, NO_DRAFTS)) for growth in active]
            logits, start = self._runner.forward(rows), 0
            corrections: list[Correction] = []
            for growth, row in zip(active, rows, strict=True):
                corrections.append(growth.take(logits[start : start + row.num_logits]))
                start += row.num_logits
            self._runner.move([move for correction in corrections for move in correction.moves])
            self._count(corrections)
            active = [growth for growth in active if not growth.done]
        for session in sessions:
            del self._pending[session.opening.session]
        draft_ms = (time.monotonic() - started) * 1e3
        return [growth.proposal(draft_ms) for growth in growths]

    def _growth(self, session: ModelSession) -> CascadeGrowth:
        return CascadeGrowth(
            session,
            session.sampler(self._eos_token_ids),
            limits=self._limits(session),
            end_token_ids=session.end_token_ids(self._eos_token_ids),
            max_law_tokens=self._max_law_tokens,
            draft_ids=self._draft_ids,
        )

    def _count(self, corrections: Sequence[Correction]) -> None:
        """Count one pass."""
        kept = sum(correction.kept for correction in corrections)
        amounts = (
            (catalogue.CASCADE_PASSES, 1),
            (catalogue.CASCADE_KEPT_TOKENS, kept),
            (catalogue.CASCADE_REJECTED_TOKENS, sum(correction.proposed for correction in corrections) - kept),
            (catalogue.CASCADE_CORRECTIONS, sum(correction.corrected for correction in corrections)),
        )
        for counter, amount in amounts:
            self._metrics.count(counter, amount, **self._labels)
