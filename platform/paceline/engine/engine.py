"""The native engine: one step at a time, on one thread."""

import time
from collections.abc import Callable, Iterator
from collections.abc import Sequence as SequenceOf
from dataclasses import dataclass
from typing import Protocol

import torch

from paceline.core.generation import ChoiceStats, FinishReason, GenerationChunk, GenerationRequest
from paceline.core.hashed_tokens import HashedTokens
from paceline.engine.accounting import record_finish, record_load, record_pass, record_round, record_step
from paceline.engine.finish import emit
from paceline.engine.report import last_chunk, logprobs_of, trace_of
from paceline.engine.scheduler import Scheduler
from paceline.engine.sequence import Sequence
from paceline.engine.speculation import Speculation
from paceline.engine.step_plan import Decision, Drafts, PlannedRow, StepPlan, StepTimes
from paceline.engine.throughput import ThroughputMeter
from paceline.errors import CacheCorruptionError
from paceline.kvcache.page_pool import PagePool
from paceline.modeling.forward_row import ForwardRow
from paceline.telemetry import catalogue
from paceline.telemetry.metrics import Metrics
from paceline.text.choice_text import ChoiceText
from paceline.text.tokenizer import TextTokenizer
from paceline.verification.sampler_state import SamplerState
from paceline.verification.verifier import Verdict, Verifier, VerifyRow

_STEP_TIME_DECAY = 0.8  # weight of the past in the mean step time


class Runner(Protocol):
    """The target model behind its page pool; see `modeling.runner.ModelRunner`."""

    pool: PagePool

    def forward(self, rows: SequenceOf[ForwardRow]) -> torch.Tensor:
        """Logits [sum of num_logits, vocab] of the rows, in order; K/V go to the pages."""


@dataclass(frozen=True, slots=True)
class EngineModel:
    """Facts about the target that decoding needs."""

    tokenizer: TextTokenizer
    eos_token_ids: tuple[int, ...]
    context_length: int


Deliver = Callable[[list[GenerationChunk]], None]


class Engine:
    """Continuous batching with speculation. All methods run on the engine's thread."""

    def __init__(
        self,
        model: EngineModel,
        runner: Runner,
        scheduler: Scheduler,
        speculation: Speculation,
        verifier: Verifier,
        *,
        metrics: Metrics,
        deliver: Deliver,
    ) -> None:
        self._model = model
        self._runner = runner
        self._scheduler = scheduler
        self._speculation = speculation
        self._verifier = verifier
        self._metrics = metrics
        self._deliver = deliver
        self._throughput = ThroughputMeter()

    @property
    def decode_tokens_per_s(self) -> float:
        """Tokens committed per second, lately."""
        return self._throughput.rate()

    @property
    def has_work(self) -> bool:
        """Whether a step would do anything."""
        return self._scheduler.has_work

    def step(self) -> None:
        """Run one target pass and commit what it decided."""
        started = time.monotonic()
        self._speculation.open(self._scheduler.admit())
        plan = self._scheduler.schedule()
        drafts = self._speculation.collect(plan)
        logits = self._forward(plan, drafts)
        decisions = self._decide(plan, drafts, logits)
        chunks = self._commit(plan, decisions, self._times(started, drafts))
        self._speculation.request(d.row.sequence for d in decisions if d.row.sequence.finish is None)
        self._deliver(chunks)
        record_step(self._metrics, self._scheduler, self._runner.pool, time.monotonic() - started)

    def add(self, request: GenerationRequest) -> None:
        """Queue a request. Raises OverloadedError if the queue is full."""
        self._scheduler.add(self._sequence(request, choice) for choice in range(request.num_choices))

    def abort(self, key: str) -> None:
        """End a request now; its pages and sessions are free when this returns."""
        sequences = self._scheduler.of_request(key)
        self._end(sequences)
        self._deliver([last_chunk(sequence) for sequence in sequences])

    def fail_all(self) -> list[str]:
        """End everything after a failed step; returns the keys of the requests that ended."""
        sequences = [*self._scheduler.running, *self._scheduler.waiting]
        self._end(sequences)
        return list(dict.fromkeys(sequence.key for sequence in sequences))

    def check_integrity(self) -> None:
        """Raise CacheCorruptionError if pages were lost, or if an idle engine still holds something."""
        pool = self._runner.pool
        pool.check_integrity()
        if not self.has_work and (pool.num_held or self._speculation.num_sessions):
            raise CacheCorruptionError(
                f"idle, but {pool.num_held} pages and {self._speculation.num_sessions} draft sessions are held"
            )

    def _sequence(self, request: GenerationRequest, choice: int) -> Sequence:
        prompt = request.prompt_token_ids
        return Sequence(
            request=request,
            choice=choice,
            tokens=HashedTokens(prompt),
            sampler=SamplerState(
                request.sampling,
                prompt_token_ids=prompt,
                eos_token_ids=self._model.eos_token_ids,
                seed=request.seed,
                choice=choice,
            ),
            text=ChoiceText(self._model.tokenizer, prompt, request.sampling.stop),
            max_length=min(len(prompt) + request.sampling.max_tokens, self._model.context_length),
        )

    def _end(self, sequences: SequenceOf[Sequence]) -> None:
        for sequence in sequences:
            sequence.finish = FinishReason.ABORT
            self._speculation.close(sequence)
            self._scheduler.retire(sequence)
        record_finish(self._metrics, sequences)
        record_load(self._metrics, self._scheduler, self._runner.pool)

    def _forward(self, plan: StepPlan, drafts: Drafts) -> torch.Tensor:
        """Exactly one pass of the target over committed tokens and drafts."""
        rows = []
        for row, proposal in zip(plan.rows, drafts.by_row, strict=True):
            draft_ids = proposal.tree.token_ids if proposal else ()
            table = row.sequence.table
            if table is None:
                raise RuntimeError(f"sequence {row.sequence.key} is scheduled without pages")
            table.extend_to(row.stop + len(draft_ids))
            token_ids = [*row.sequence.tokens.slice(row.start, row.stop), *draft_ids]
            rows.append(ForwardRow(token_ids, row.start, table, 1 + len(draft_ids) if row.completes else 0))
        logits = self._runner.forward(rows)
        record_pass(self._metrics, plan, sum(len(row.token_ids) for row in rows))
        return logits

    def _decide(self, plan: StepPlan, drafts: Drafts, logits: torch.Tensor) -> list[Decision]:
        """Next tokens of every row that completes; rows without drafts are drawn, not verified."""
        pending = list(_undecided(plan, drafts, logits))
        plain = [(row, verify) for row, verify in pending if verify.proposal is None]
        drafted = [(row, verify) for row, verify in pending if verify.proposal is not None]
        decisions = _pair(plain, self._verifier.sample([verify for _, verify in plain]))
        if drafted:
            started = time.monotonic()
            decisions += _pair(drafted, self._verifier.verify([verify for _, verify in drafted]))
            self._metrics.observe(catalogue.VERIFY_TIME, time.monotonic() - started)
            self._metrics.count(catalogue.VERIFY_CALLS)
        return decisions

    def _times(self, started: float, drafts: Drafts) -> StepTimes:
        pass_s = time.monotonic() - started - drafts.wait_s
        mean = self._speculation.step_time_s
        self._speculation.step_time_s = _STEP_TIME_DECAY * mean + (1 - _STEP_TIME_DECAY) * pass_s if mean else pass_s
        return StepTimes(drafts.wait_s, pass_s)

    def _commit(self, plan: StepPlan, decisions: list[Decision], times: StepTimes) -> list[GenerationChunk]:
        """Apply decisions and retire what finished."""
        for row in plan.rows:
            row.sequence.num_computed = row.stop
        chunks = [self._apply(decision, times) for decision in decisions]
        record_finish(self._metrics, [decision.row.sequence for decision in decisions])
        self._throughput.add(sum(len(chunk.token_ids) for chunk in chunks))
        return chunks

    def _apply(self, decision: Decision, times: StepTimes) -> GenerationChunk:
        """Commit one round: K/V of accepted drafts stay, rejected slots go back, text moves on."""
        sequence, verdict = decision.row.sequence, decision.verdict
        group = self._speculation.drafter_of(sequence)
        first_index, text_offset = sequence.num_output, sequence.text.offset
        emission = emit(sequence, verdict.token_ids)
        sequence.keep_computed(decision.row.stop + verdict.accepted)
        sequence.rounds += 1
        sequence.drafted += len(decision.drafted)
        sequence.tested += verdict.tested
        sequence.accepted += min(verdict.accepted, emission.num_tokens)
        sequence.finish = emission.finish
        record_round(self._metrics, group, decision, emission.num_tokens)
        return GenerationChunk(
            key=sequence.key,
            choice=sequence.choice,
            first_index=first_index,
            token_ids=verdict.token_ids[: emission.num_tokens],
            text=emission.text,
            text_offset=text_offset,
            logprobs=logprobs_of(decision, emission.num_tokens),
            rounds=(trace_of(decision, times, emission.num_tokens),) if sequence.request.explain else (),
            finish=emission.finish,
            stats=self._retire(sequence, group) if emission.finish else None,
        )

    def _retire(self, sequence: Sequence, group: str | None) -> ChoiceStats:
        self._speculation.close(sequence)
        self._scheduler.retire(sequence)
        return sequence.stats(group)


_Undecided = tuple[PlannedRow, VerifyRow]


def _undecided(plan: StepPlan, drafts: Drafts, logits: torch.Tensor) -> Iterator[_Undecided]:
    """Every row that completes, with its share of the logits."""
    offset = 0
    for row, proposal in zip(plan.rows, drafts.by_row, strict=True):
        if row.completes:
            count = 1 + (len(proposal.tree) if proposal else 0)
            yield row, VerifyRow(row.sequence.sampler, logits[offset : offset + count], proposal)
            offset += count


def _pair(rows: list[_Undecided], verdicts: list[Verdict]) -> list[Decision]:
    return [
        Decision(row, verify.proposal, verify.logits, verdict)
        for (row, verify), verdict in zip(rows, verdicts, strict=True)
    ]
