"""Makes one decision part of its sequence."""

from typing import NamedTuple

from paceline.core.generation import GenerationChunk
from paceline.engine.accounting import record_round
from paceline.engine.finish import emit
from paceline.engine.report import logprobs_of, trace_of
from paceline.engine.step_plan import Decision, StepTimes
from paceline.telemetry.metrics import Metrics


class Commit(NamedTuple):
    """What one committed round leaves to do."""

    chunk: GenerationChunk
    moves: list[tuple[int, int]]  # (source slot, target slot) of K/V, before the next pass


def commit(decision: Decision, times: StepTimes, *, group: str | None, metrics: Metrics) -> Commit:
    """Commit one round: K/V of the accepted path stay, all other draft slots go back, text moves on.

    ``tested`` and ``accepted`` count levels of the draft tree, which are the drafts of a chain. Those
    behind the token that ends the answer count neither as tested nor as accepted.
    """
    sequence, verdict = decision.row.sequence, decision.verdict
    first_index, text_offset = sequence.num_output, sequence.text.offset
    emission = emit(sequence, verdict.token_ids)
    standing = emission.num_tokens
    tested, accepted = min(verdict.tested, standing), min(verdict.accepted, standing)
    moves = sequence.keep_path(decision.row.stop, verdict.path)
    sequence.rounds += 1
    sequence.drafted += len(decision.drafted)
    sequence.tested += tested
    sequence.accepted += accepted
    sequence.finish = emission.finish
    record_round(metrics, group, drafted=len(decision.drafted), tested=tested, accepted=accepted, committed=standing)
    chunk = GenerationChunk(
        key=sequence.key,
        choice=sequence.choice,
        first_index=first_index,
        token_ids=verdict.token_ids[:standing],
        text=emission.text,
        text_offset=text_offset,
        logprobs=logprobs_of(decision, standing),
        rounds=(trace_of(decision, times, standing),) if sequence.request.explain else (),
        finish=emission.finish,
        stats=sequence.stats(group) if emission.finish else None,
    )
    return Commit(chunk, moves)
