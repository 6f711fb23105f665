"""The native engine: one step at a time, on one thread."""

import time
from collections.abc import Callable
from collections.abc import Sequence as SequenceOf
from contextlib import ExitStack
from typing import Protocol

import torch

from paceline.core.drafts import DraftTree
from paceline.core.generation import FinishReason, GenerationChunk, GenerationRequest
from paceline.engine.accounting import record_finish, record_load, record_pass, record_step
from paceline.engine.arrival import EngineModel, sequences_of
from paceline.engine.commit import commit
from paceline.engine.decide import Fault, decide
from paceline.engine.report import last_chunk
from paceline.engine.scheduler import Scheduler
from paceline.engine.sequence import Sequence
from paceline.engine.speculation import Speculation
from paceline.engine.step_plan import Decision, Drafts, StepPlan, StepTimes
from paceline.engine.throughput import ThroughputMeter
from paceline.errors import CacheCorruptionError, PacelineError
from paceline.kvcache.page_pool import PagePool
from paceline.modeling.forward_row import ForwardRow
from paceline.telemetry.metrics import Metrics
from paceline.verification.verifier import Verifier

_NO_DRAFTS = DraftTree((), ())


class Runner(Protocol):
    """The target model behind its page pool; see `modeling.runner.ModelRunner`."""

    pool: PagePool

    def forward(self, rows: SequenceOf[ForwardRow]) -> torch.Tensor:
        """Logits [sum of num_logits, vocab] of the rows, in order; K/V go to the pages."""

    def move(self, moves: SequenceOf[tuple[int, int]]) -> None:
        """Copy K/V between slots, given as (source, target); all sources are read first."""


Deliver = Callable[[list[GenerationChunk]], None]
OnError = Callable[[list[str], PacelineError], None]  # keys of requests that ended, and why


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
        on_error: OnError,
    ) -> None:
        self._model = model
        self._runner = runner
        self._scheduler = scheduler
        self._speculation = speculation
        self._verifier = verifier
        self._metrics = metrics
        self._deliver = deliver
        self._on_error = on_error
        self._throughput = ThroughputMeter()
        self.rows_computed = 0  # by all passes so far: a step that adds nothing made no progress

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
        plan = self._scheduler.schedule(self._speculation.draft_limit)
        plan, drafts = self._speculation.collect(plan)
        logits = self._forward(plan, drafts)
        decisions, faults = decide(plan, drafts, logits, self._verifier, self._metrics)
        chunks = self._commit(plan, decisions, self._times(started, drafts))
        self._speculation.request(d.row.sequence for d in decisions if d.row.sequence.finish is None)
        self._deliver(chunks)
        self._retire(plan, faults)
        record_step(self._metrics, self._scheduler, self._runner.pool, time.monotonic() - started)

    def add(self, request: GenerationRequest) -> None:
        """Queue a request. Raises OverloadedError if the queue is full, and what `sequences_of` raises."""
        sequences = sequences_of(request, self._model)
        self._scheduler.add(sequence for sequence in sequences if sequence.finish is None)
        ended = [sequence for sequence in sequences if sequence.finish is not None]
        self._deliver([last_chunk(sequence, group=None) for sequence in ended])
        record_finish(self._metrics, ended)

    def abort(self, key: str) -> None:
        """End a request now; its pages and sessions are free when this returns."""
        sequences = self._scheduler.of_request(key)
        groups = [self._speculation.drafter_of(sequence) for sequence in sequences]
        self._end(sequences, publish=True)
        self._deliver([last_chunk(sequence, group) for sequence, group in zip(sequences, groups, strict=True)])

    def fail_all(self, error: PacelineError) -> None:
        """End everything after a failed step. Raises nothing, whatever the step has left behind."""
        sequences = [*self._scheduler.running, *self._scheduler.waiting]
        try:
            self._end(sequences, publish=False)
            self._scheduler.room.prefixes.clear()  # nothing that a broken step may have touched is used again
        finally:
            self._on_error(list(dict.fromkeys(sequence.key for sequence in sequences)), error)

    def check_integrity(self) -> None:
        """Raise CacheCorruptionError if pages were lost, or if an idle engine still holds something."""
        self._scheduler.check_integrity()
        if not self.has_work and self._speculation.num_sessions:
            raise CacheCorruptionError(f"idle, but {self._speculation.num_sessions} draft sessions are open")

    def _end(self, sequences: SequenceOf[Sequence], *, publish: bool) -> None:
        """Drop sequences, each whatever became of the others; what they computed is shared if ``publish``."""
        with ExitStack() as stack:
            for sequence in sequences:
                sequence.finish = FinishReason.ABORT
                stack.callback(self._scheduler.retire, sequence, publish=publish)
                stack.callback(self._speculation.close, sequence)
        record_finish(self._metrics, sequences)
        record_load(self._metrics, self._scheduler, self._runner.pool)

    def _forward(self, plan: StepPlan, drafts: Drafts) -> torch.Tensor:
        """Exactly one pass of the target over committed tokens and drafts."""
        rows = []
        for row, proposal in zip(plan.rows, drafts.by_row, strict=True):
            tree = proposal.tree if proposal else _NO_DRAFTS
            table = row.sequence.table
            if table is None:
                raise RuntimeError(f"sequence {row.sequence.key} is scheduled without pages")
            table.extend_to(row.stop + len(tree))  # one slot per node, whatever path it is on
            token_ids = [*row.sequence.tokens.slice(row.start, row.stop), *tree.token_ids]
            num_logits = 1 + len(tree) if row.completes else 0
            parents = () if tree.is_chain else tree.parents
            rows.append(ForwardRow(token_ids, row.start, table, num_logits, parents))
        logits = self._runner.forward(rows)
        self.rows_computed += len(rows)
        record_pass(self._metrics, plan, sum(len(row.token_ids) for row in rows))
        return logits

    def _times(self, started: float, drafts: Drafts) -> StepTimes:
        return StepTimes(drafts.wait_s, time.monotonic() - started - drafts.wait_s)

    def _commit(self, plan: StepPlan, decisions: list[Decision], times: StepTimes) -> list[GenerationChunk]:
        for row in plan.rows:
            row.sequence.num_computed = row.stop
        commits = [
            commit(
                decision,
                times,
                group=self._speculation.drafter_of(decision.row.sequence),
                metrics=self._metrics,
            )
            for decision in decisions
        ]
        self._runner.move([move for committed in commits for move in committed.moves])
        chunks = [committed.chunk for committed in commits]
        self._throughput.add(sum(len(chunk.token_ids) for chunk in chunks))
        return chunks

    def _retire(self, plan: StepPlan, faults: list[Fault]) -> None:
        """Let go of what ended. After delivery: until then a failed step must be able to reach everyone."""
        finished = [row.sequence for row in plan.rows if row.sequence.finish is not None]
        for sequence in finished:
            self._speculation.close(sequence)
            self._scheduler.retire(sequence)
        record_finish(self._metrics, finished)
        for fault in faults:
            self._end(self._scheduler.of_request(fault.sequence.key), publish=False)
            self._on_error([fault.sequence.key], fault.error)
