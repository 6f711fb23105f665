"""Counts what a step did. Kept apart so that the step reads as its algorithm."""

from collections.abc import Sequence as SequenceOf

from paceline.engine.scheduler import Scheduler
from paceline.engine.sequence import Sequence
from paceline.engine.step_plan import StepPlan
from paceline.kvcache.page_pool import PagePool
from paceline.telemetry import catalogue
from paceline.telemetry.metrics import Metrics


def record_pass(metrics: Metrics, plan: StepPlan, num_tokens: int) -> None:
    """Count one target pass over ``num_tokens`` tokens, drafts included."""
    prefill = plan.num_prefill_tokens
    metrics.count(catalogue.STEPS)
    metrics.count(catalogue.TARGET_FORWARDS)
    metrics.count(catalogue.PREFILL_TOKENS, prefill)
    metrics.count(catalogue.DECODE_TOKENS, num_tokens - prefill)


def record_round(
    metrics: Metrics, group: str | None, *, drafted: int, tested: int, accepted: int, committed: int
) -> None:
    """Count one round of one choice."""
    label = group if group and drafted else catalogue.NO_GROUP
    metrics.count(catalogue.ROUNDS, 1, group=label)
    metrics.count(catalogue.COMMITTED_TOKENS, committed, group=label)
    if not drafted:
        return
    metrics.count(catalogue.DRAFTED_TOKENS, drafted, group=label)
    metrics.count(catalogue.TESTED_TOKENS, tested, group=label)
    metrics.count(catalogue.ACCEPTED_TOKENS, accepted, group=label)
    for position in range(tested):
        metrics.count(catalogue.TESTED_AT, 1, group=label, position=str(position))
    for position in range(accepted):
        metrics.count(catalogue.ACCEPTED_AT, 1, group=label, position=str(position))


def record_finish(metrics: Metrics, sequences: SequenceOf[Sequence]) -> None:
    """Count choices that ended in this step."""
    for sequence in sequences:
        if sequence.finish is not None:
            metrics.count(catalogue.FINISHED_CHOICES, 1, finish=sequence.finish.value)


def record_load(metrics: Metrics, scheduler: Scheduler, pool: PagePool) -> None:
    """Set the gauges of queue and cache."""
    metrics.set(catalogue.RUNNING, len(scheduler.running))
    metrics.set(catalogue.WAITING, len(scheduler.waiting))
    free, available = pool.num_free, scheduler.room.num_free
    metrics.set(catalogue.KV_PAGES, free, state="free")
    metrics.set(catalogue.KV_PAGES, available - free, state="cached")
    metrics.set(catalogue.KV_PAGES, pool.num_pages - available, state="held")


def record_step(metrics: Metrics, scheduler: Scheduler, pool: PagePool, duration_s: float) -> None:
    """Count one whole step."""
    metrics.observe(catalogue.STEP_TIME, duration_s)
    record_load(metrics, scheduler, pool)
