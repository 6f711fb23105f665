"""Turns the logits of one pass into a decision for every row that completes."""

import time
from collections.abc import Callable, Iterator
from collections.abc import Sequence as SequenceOf
from typing import NamedTuple

import torch

from paceline.engine.sequence import Sequence
from paceline.engine.step_plan import Decision, Drafts, PlannedRow, StepPlan
from paceline.errors import EngineFailedError
from paceline.telemetry import catalogue
from paceline.telemetry.metrics import Metrics
from paceline.verification.verifier import Verdict, Verifier, VerifyRow

_Undecided = tuple[PlannedRow, VerifyRow]
_Judge = Callable[[SequenceOf[VerifyRow]], list[Verdict]]


class Fault(NamedTuple):
    """A sequence that cannot go on, and why; the others of its pass can."""

    sequence: Sequence
    error: EngineFailedError


class Outcome(NamedTuple):
    """What one pass decided."""

    decisions: list[Decision]
    faults: list[Fault]


def decide(plan: StepPlan, drafts: Drafts, logits: torch.Tensor, verifier: Verifier, metrics: Metrics) -> Outcome:
    """Next tokens of every row that completes; rows without drafts are drawn, not verified.

    ``logits`` [rows of the pass, vocab], float32.
    """
    outcome = Outcome([], [])
    pending = list(_undecided(plan, drafts, logits))
    _judge([pair for pair in pending if pair[1].proposal is None], verifier.sample, outcome)
    drafted = [pair for pair in pending if pair[1].proposal is not None]
    if drafted:
        started = time.monotonic()
        _judge(drafted, verifier.verify, outcome)
        metrics.observe(catalogue.VERIFY_TIME, time.monotonic() - started)
        metrics.count(catalogue.VERIFY_CALLS)
    return outcome


def _undecided(plan: StepPlan, drafts: Drafts, logits: torch.Tensor) -> Iterator[_Undecided]:
    """Every row that completes, with its share of the logits."""
    offset = 0
    for row, proposal in zip(plan.rows, drafts.by_row, strict=True):
        if row.completes:
            count = 1 + (len(proposal.tree) if proposal else 0)
            yield row, VerifyRow(row.sequence.sampler, logits[offset : offset + count], proposal)
            offset += count


def _judge(rows: list[_Undecided], judge: _Judge, outcome: Outcome) -> None:
    """Judge all rows together; where one of them has no distribution, each by itself."""
    try:
        verdicts = judge([verify for _, verify in rows])
    except EngineFailedError as error:
        if len(rows) == 1:
            outcome.faults.append(Fault(rows[0][0].sequence, error))
            return
        for row in rows:
            _judge([row], judge, outcome)
        return
    outcome.decisions.extend(
        Decision(row, verify.proposal, verify.logits, verdict)
        for (row, verify), verdict in zip(rows, verdicts, strict=True)
    )
