"""Which tokens of which sequences go into the next pass. No prefill or decode phases.

Every sequence catches up with its tokens: a prompt in chunks, a decoding one by its newest token.
"""

from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from paceline.engine.kv_room import KVRoom
from paceline.engine.sequence import Arrival, Sequence
from paceline.engine.step_budget import share_drafts, share_prefill, shares
from paceline.engine.step_plan import PlannedRow, StepPlan
from paceline.errors import ContextLengthExceededError, OverloadedError
from paceline.kvcache.page_pool import PagePool
from paceline.telemetry import catalogue
from paceline.telemetry.metrics import Metrics

# A prefix that saves fewer tokens than this is not worth a pass of waiting for whoever computes it.
_WORTH_WAITING_TOKENS = 32
# Requests that wait for a prefix are looked at again in every step, so only so many let others by.
_MOST_PASSED_BY = 16


@dataclass(frozen=True, slots=True)
class SchedulerLimits:
    """Bounds of the scheduler, from the `engine` section of the configuration."""

    max_running: int
    max_waiting: int
    step_tokens: int
    prefix_cache: bool = True


class Scheduler:
    """First come, first served, resumed answers before all others; under pressure last come, first sent back.

    When pages run short prefixes that nobody uses are evicted, then drafts are left out, then the youngest running
    sequence is pre-empted: it goes back to the queue, ahead of all that came later, and is computed again.
    The oldest sequence is never pre-empted for another, so it always gets on.
    """

    def __init__(self, pool: PagePool, limits: SchedulerLimits, metrics: Metrics | None = None) -> None:
        self._pool = pool
        self._limits = limits
        self._metrics = metrics or Metrics()
        self.room = KVRoom(pool, prefix_cache=limits.prefix_cache, metrics=self._metrics)
        self.waiting: deque[Sequence] = deque()  # by arrival
        self.running: list[Sequence] = []
        self._arrivals = 0

    @property
    def has_work(self) -> bool:
        """Whether a step would do anything."""
        return bool(self.waiting or self.running)

    def add(self, sequences: Iterable[Sequence]) -> None:
        """Queue the choices of one request, all or none; resumed ones before all that have not been begun elsewhere.

        Raises OverloadedError if the queue is full, never for a resumed request: its client has half of the answer.
        Raises ContextLengthExceededError for what could never run.
        """
        arriving = list(sequences)
        room = self._limits.max_waiting + self._limits.max_running - len(self.running) - len(self.waiting)
        if len(arriving) > room and not any(sequence.request.resumed for sequence in arriving):
            raise OverloadedError("the target's queue", retry_after_s=1.0)
        for sequence in arriving:
            if sequence.max_length > (most := self.room.capacity_tokens):
                raise ContextLengthExceededError(sequence.num_prompt, sequence.max_length - sequence.num_prompt, most)
        for sequence in arriving:
            self._arrivals += 1
            sequence.arrival = (not sequence.request.resumed, self._arrivals)
            self._queue(sequence)

    def admit(self) -> list[Sequence]:
        """Move waiting sequences to running, in order, as far as pages and places go; returns the new ones among them.

        One whose prefix is being computed right now waits for it, its other choices with it, and lets others by.
        """
        self._pool.report_freed()
        self._publish_prompts()
        admitted = []
        passed_by: set[str] = set()  # requests
        for sequence in list(self.waiting):
            if len(self.running) >= self._limits.max_running or len(passed_by) >= _MOST_PASSED_BY:
                break
            if sequence.key in passed_by or self._prefix_is_coming(sequence):
                passed_by.add(sequence.key)
                continue
            if not self.room.admit(sequence, self.running):
                break
            self.waiting.remove(sequence)
            self.running.append(sequence)
            if not sequence.preemptions:
                admitted.append(sequence)
        return admitted

    def schedule(self, draft_limit: Callable[[Sequence], int]) -> StepPlan:
        """Plan one pass: a token of each decoding sequence, prompt chunks, and drafts with what is left.

        ``draft_limit`` tells how many drafts a sequence may have at this moment; of a tree it counts nodes. The
        rows have room: pages for their tokens and drafts are promised when this returns.
        """
        self._hold_committed()
        decoding = [sequence for sequence in self.running if sequence.decoding]
        prefilling = [sequence for sequence in self.running if not sequence.decoding]
        wanted = [_wanted_drafts(sequence, draft_limit(sequence)) for sequence in decoding]
        budget = shares(
            self._limits.step_tokens,
            num_decoding=len(decoding),
            wanted_drafts=sum(wanted),
            wanted_prefill=sum(sequence.num_missing for sequence in prefilling),
        )
        rows = [
            PlannedRow(sequence, sequence.num_computed, len(sequence.tokens), self.room.look_ahead(sequence, drafts))
            for sequence, drafts in zip(decoding, share_drafts(wanted, budget.drafts), strict=True)
        ]
        chunks = share_prefill(prefilling, budget.prefill).items()
        rows += [PlannedRow(s, s.num_computed, s.num_computed + count, 0) for s, count in chunks]
        return StepPlan(rows)

    def retire(self, sequence: Sequence, *, publish: bool = True) -> None:
        """Forget a sequence, wherever it is, and free its pages; what it computed stays known if ``publish``."""
        if sequence in self.running:
            self.running.remove(sequence)
        elif sequence in self.waiting:
            self.waiting.remove(sequence)
        self.room.release(sequence, publish=publish)

    def of_request(self, key: str) -> list[Sequence]:
        """All unfinished sequences of a request."""
        return [sequence for sequence in (*self.running, *self.waiting) if sequence.key == key]

    def check_integrity(self) -> None:
        """Raise CacheCorruptionError if a page is lost, or held by nobody who runs and by no prefix."""
        self._pool.report_freed()
        self.room.check_integrity(self.running)

    def _publish_prompts(self) -> None:
        """Share each prompt as soon as it is computed, for choices and requests that begin alike."""
        for sequence in self.running:
            if not sequence.published and sequence.num_computed >= sequence.num_prompt:
                self.room.publish(sequence)
                sequence.published = True

    def _prefix_is_coming(self, sequence: Sequence) -> bool:
        """Whether an older sequence is computing at least half of what this one lacks."""
        ahead = [other for other in self.running if not other.published and other.arrival < sequence.arrival]
        if not (ahead and self._limits.prefix_cache):
            return False
        known = self.room.num_known(sequence)
        worth = known + max(_WORTH_WAITING_TOKENS, (len(sequence.tokens) - known) // 2)
        return worth < len(sequence.tokens) and any(_begin_alike(sequence, other, worth) for other in ahead)

    def _hold_committed(self) -> None:
        """Make sure that every running sequence has room for its tokens, oldest first; the youngest give way.

        Before that, room for drafts of the last pass goes back, also for rows that were left out of it.
        """
        for sequence in self.running:
            self.room.forget_look_ahead(sequence)
        for sequence in sorted(self.running, key=_arrival):
            while sequence.table is not None and not self.room.hold(sequence):
                self._preempt(max(self.running, key=_arrival))

    def _preempt(self, victim: Sequence) -> None:
        """Send a running sequence back to the queue. What it has computed stays known until others need the pages."""
        self.running.remove(victim)
        self.room.release(victim, publish=True)
        victim.published = False
        victim.preemptions += 1
        self._queue(victim)
        self._metrics.count(catalogue.PREEMPTIONS)

    def _queue(self, sequence: Sequence) -> None:
        earlier = sum(other.arrival < sequence.arrival for other in self.waiting)
        self.waiting.insert(earlier, sequence)


def _arrival(sequence: Sequence) -> Arrival:
    return sequence.arrival


def _begin_alike(sequence: Sequence, other: Sequence, length: int) -> bool:
    """Whether both have the same first ``length`` tokens; a hash is enough to decide about waiting."""
    same_tenant = sequence.request.tenant_salt == other.request.tenant_salt
    return (
        same_tenant and other.num_prompt >= length and sequence.tokens.hash_at(length) == other.tokens.hash_at(length)
    )


def _wanted_drafts(sequence: Sequence, limit: int) -> int:
    """Nodes of a tree may be more than the tokens that are left; what is too deep is cut when drafts are taken."""
    return min(limit, sequence.request.plan.max_draft_tokens) if sequence.tokens_left > 1 else 0
