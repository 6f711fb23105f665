"""Which tokens of which sequences go into the next pass. No prefill or decode phases.

Every sequence catches up with its tokens: a prompt in chunks, a decoding one by its newest token.
"""

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass

from paceline.engine.sequence import Sequence
from paceline.engine.step_plan import PlannedRow, StepPlan
from paceline.errors import OverloadedError
from paceline.kvcache.page_pool import PagePool


@dataclass(frozen=True, slots=True)
class SchedulerLimits:
    """Bounds of the scheduler, from the `engine` section of the configuration."""

    max_running: int
    max_waiting: int
    step_tokens: int


class Scheduler:
    """First come, first served. A sequence is admitted once all pages that it can need are free."""

    def __init__(self, pool: PagePool, limits: SchedulerLimits) -> None:
        self._pool = pool
        self._limits = limits
        self.waiting: deque[Sequence] = deque()
        self.running: list[Sequence] = []

    @property
    def has_work(self) -> bool:
        """Whether a step would do anything."""
        return bool(self.waiting or self.running)

    def add(self, sequences: Iterable[Sequence]) -> None:
        """Queue the choices of one request, all or none."""
        arriving = list(sequences)
        slots = self._limits.max_running - len(self.running)
        if len(self.waiting) + len(arriving) > self._limits.max_waiting + slots:
            raise OverloadedError("the target's queue", retry_after_s=1.0)
        self.waiting.extend(arriving)

    def admit(self) -> list[Sequence]:
        """Move waiting sequences to running, in order, as far as pages and slots go."""
        admitted = []
        while self.waiting and len(self.running) < self._limits.max_running:
            head = self.waiting[0]
            if not self._pool.can_reserve(self._pool.pages_for(head.max_length)):
                break
            self.waiting.popleft()
            head.admit(self._pool)
            self.running.append(head)
            admitted.append(head)
        return admitted

    def schedule(self, max_draft_tokens: int) -> StepPlan:
        """Plan one pass: a token of each decoding sequence, prompt chunks, then room for drafts.

        ``max_draft_tokens`` is the limit of this moment for each sequence.

        Prompt chunks get what the decodes leave of ``step_tokens`` and at least a quarter of it;
        drafts share what is left after that.
        """
        decoding = [sequence for sequence in self.running if sequence.decoding]
        prefilling = [sequence for sequence in self.running if not sequence.decoding]
        wanted_drafts = sum(_wanted_drafts(sequence, max_draft_tokens) for sequence in decoding)
        left = self._limits.step_tokens - len(decoding)
        prefill_budget = max(left - wanted_drafts, self._limits.step_tokens // 4, 1) if prefilling else 0
        chunks = _prompt_chunks(prefilling, prefill_budget)
        left -= sum(row.stop - row.start for row in chunks)
        return StepPlan([*_decode_rows(decoding, max_draft_tokens, max(left, 0)), *chunks])

    def retire(self, sequence: Sequence) -> None:
        """Forget a sequence, wherever it is, and free its pages."""
        if sequence in self.running:
            self.running.remove(sequence)
        elif sequence in self.waiting:
            self.waiting.remove(sequence)
        sequence.free()

    def of_request(self, key: str) -> list[Sequence]:
        """All unfinished sequences of a request."""
        return [sequence for sequence in (*self.running, *self.waiting) if sequence.key == key]


def _wanted_drafts(sequence: Sequence, limit: int) -> int:
    """A round commits one token more than it drafts, so drafts never reach past the last allowed token."""
    return max(0, min(limit, sequence.request.plan.max_draft_tokens, sequence.tokens_left - 1))


def _decode_rows(decoding: list[Sequence], limit: int, draft_budget: int) -> list[PlannedRow]:
    rows = []
    for sequence in decoding:
        drafts = min(_wanted_drafts(sequence, limit), draft_budget)
        draft_budget -= drafts
        rows.append(PlannedRow(sequence, sequence.num_computed, len(sequence.tokens), drafts))
    return rows


def _prompt_chunks(prefilling: list[Sequence], budget: int) -> list[PlannedRow]:
    rows = []
    for sequence in prefilling:
        if budget <= 0:
            break
        stop = min(len(sequence.tokens), sequence.num_computed + budget)
        budget -= stop - sequence.num_computed
        rows.append(PlannedRow(sequence, sequence.num_computed, stop, 0))
    return rows
