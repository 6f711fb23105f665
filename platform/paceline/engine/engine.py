"""The native engine: one step at a time, on one thread."""

import time
from collections.abc import Callable, Sequence as SequenceOf
from dataclasses import dataclass
from typing import Protocol

import torch

from paceline.core.generation import ChoiceStats, FinishReason, GenerationChunk, GenerationRequest, RoundTrace
from paceline.core.hashed_tokens import HashedTokens
from paceline.engine.accounting import record_finish, record_load, record_pass, record_round
from paceline.engine.finish import emit
from paceline.engine.scheduler import Scheduler
from paceline.engine.sequence import Sequence
from paceline.engine.speculation import Speculation
from paceline.engine.step_plan import Commit, Drafts, StepPlan
from paceline.engine.throughput import ThroughputMeter
from paceline.kvcache.page_pool import PagePool
from paceline.modeling.forward_row import ForwardRow
from paceline.telemetry import catalogue
from paceline.telemetry.metrics import Metrics
from paceline.text.choice_text import ChoiceText
from paceline.text.tokenizer import TextTokenizer
from paceline.verification.logprobs import token_logprob
from paceline.verification.sampler_state import SamplerState
from paceline.verification.verifier import Verdict, Verifier, VerifyRow, sample

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
        verdicts = self._verify(plan, drafts, logits)
        touched, chunks = self._commit(plan, drafts, logits, verdicts, started)
        self._speculation.request(sequence for sequence in touched if sequence.finish is None)
        self._deliver(chunks)
        self._throughput.add(sum(len(chunk.token_ids) for chunk in chunks))
        self._metrics.observe(catalogue.STEP_TIME, time.monotonic() - started)
        record_load(self._metrics, self._scheduler, self._runner.pool)

    def add(self, request: GenerationRequest) -> None:
        """Queue a request. Raises OverloadedError if the queue is full."""
        self._scheduler.add(self._sequence(request, choice) for choice in range(request.num_choices))

    def abort(self, key: str) -> None:
        """End a request now; its pages and sessions are free when this returns."""
        self._end(self._scheduler.of_request(key))

    def fail_all(self) -> list[str]:
        """End everything after a failed step; returns the keys of the requests that ended."""
        sequences = [*self._scheduler.running, *self._scheduler.waiting]
        self._end(sequences)
        return list(dict.fromkeys(sequence.key for sequence in sequences))

    def check_integrity(self) -> None:
        """Raise CacheCorruptionError if an idle engine still holds pages or sessions."""
        self._runner.pool.check_integrity()

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

    def _verify(self, plan: StepPlan, drafts: Drafts, logits: torch.Tensor) -> list[Verdict | None]:
        """One verdict per row that completes; rows without drafts are drawn, not verified."""
        verdicts: list[Verdict | None] = [None] * len(plan.rows)
        plain: list[tuple[int, VerifyRow]] = []
        drafted: list[tuple[int, VerifyRow]] = []
        for index, offset, count in _logit_rows(plan, drafts):
            proposal = drafts.by_row[index]
            row = VerifyRow(plan.rows[index].sequence.sampler, logits[offset : offset + count], proposal)
            (drafted if proposal else plain).append((index, row))
        outcomes = sample([row for _, row in plain]) if plain else []
        for (index, _), verdict in zip(plain, outcomes, strict=True):
            verdicts[index] = verdict
        if drafted:
            started = time.monotonic()
            outcomes = self._verifier.verify([row for _, row in drafted])
            self._metrics.observe(catalogue.VERIFY_TIME, time.monotonic() - started)
            self._metrics.count(catalogue.VERIFY_CALLS)
            for (index, _), verdict in zip(drafted, outcomes, strict=True):
                verdicts[index] = verdict
        return verdicts

    def _commit(
        self,
        plan: StepPlan,
        drafts: Drafts,
        logits: torch.Tensor,
        verdicts: list[Verdict | None],
        started: float,
    ) -> tuple[list[Sequence], list[GenerationChunk]]:
        """Apply verdicts and retire what finished; returns the sequences that got tokens, and the chunks."""
        pass_s = time.monotonic() - started - drafts.wait_s
        self._speculation.step_time_s = _blend(self._speculation.step_time_s, pass_s)
        for row in plan.rows:
            row.sequence.num_computed = row.stop
        chunks, touched = [], []
        for index, offset, count in _logit_rows(plan, drafts):
            verdict = verdicts[index]
            if verdict is None:
                raise RuntimeError("a row that completes has no verdict")
            commit = self._commit_of(plan, drafts, index, verdict, logits[offset : offset + count], pass_s)
            chunks.append(self._apply(commit))
            touched.append(commit.row.sequence)
        record_finish(self._metrics, touched)
        return touched, chunks

    def _commit_of(
        self, plan: StepPlan, drafts: Drafts, index: int, verdict: Verdict, logits: torch.Tensor, pass_s: float
    ) -> Commit:
        row, proposal = plan.rows[index], drafts.by_row[index]
        request = row.sequence.request
        num_top = request.sampling.logprobs
        logprobs = (
            tuple(token_logprob(logits[i], token_id, num_top) for i, token_id in enumerate(verdict.token_ids))
            if num_top is not None
            else ()
        )
        drafted = proposal.tree.token_ids if proposal else ()
        trace = None
        if request.explain:
            draft_ms = proposal.draft_ms if proposal else 0.0
            trace = RoundTrace(
                drafted, verdict.accepted, verdict.token_ids[-1], drafts.wait_s * 1e3, draft_ms, pass_s * 1e3
            )
        return Commit(row, verdict.token_ids, logprobs, drafted, verdict.accepted, verdict.tested, trace)

    def _apply(self, commit: Commit) -> GenerationChunk:
        """Commit one round: K/V of accepted drafts stay, rejected slots go back, text moves on."""
        sequence = commit.row.sequence
        group = self._speculation.drafter_of(sequence)
        first_index, text_offset = sequence.num_output, sequence.text.offset
        sequence.num_computed = commit.row.stop + commit.accepted
        emission = emit(sequence, commit.token_ids)
        sequence.num_computed = min(sequence.num_computed, len(sequence.tokens))
        if sequence.table is not None:
            sequence.table.truncate(sequence.num_computed)
        sequence.rounds += 1
        sequence.drafted += len(commit.drafted)
        sequence.tested += commit.tested
        sequence.accepted += min(commit.accepted, emission.num_tokens)
        sequence.finish = emission.finish
        record_round(self._metrics, group if commit.drafted else None, commit, emission.num_tokens)
        stats = self._retire(sequence, group) if emission.finish else None
        return GenerationChunk(
            key=sequence.key,
            choice=sequence.choice,
            first_index=first_index,
            token_ids=commit.token_ids[: emission.num_tokens],
            text=emission.text,
            text_offset=text_offset,
            logprobs=commit.logprobs[: emission.num_tokens],
            rounds=(commit.trace,) if commit.trace else (),
            finish=emission.finish,
            stats=stats,
        )

    def _retire(self, sequence: Sequence, group: str | None) -> ChoiceStats:
        self._speculation.close(sequence)
        self._scheduler.retire(sequence)
        return sequence.stats(group)


def _logit_rows(plan: StepPlan, drafts: Drafts) -> list[tuple[int, int, int]]:
    """(row index, first logit row, number of logit rows) of every row that completes."""
    places = []
    offset = 0
    for index, row in enumerate(plan.rows):
        if row.completes:
            proposal = drafts.by_row[index]
            count = 1 + (len(proposal.tree) if proposal else 0)
            places.append((index, offset, count))
            offset += count
    return places


def _blend(mean: float, value: float) -> float:
    return value if mean == 0.0 else _STEP_TIME_DECAY * mean + (1 - _STEP_TIME_DECAY) * value
