"""Brings together the drafts of one pass: works for those of this process, waits for others while it pays."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from paceline.engine.draft_exchange import DraftExchange
from paceline.engine.session_ledger import SessionLedger
from paceline.engine.step_plan import PlannedRow, StepPlan
from paceline.engine.step_time import PassTimes
from paceline.engine.waiting import Action, Move, Outstanding, Snapshot, prompt_worth
from paceline.telemetry import catalogue
from paceline.telemetry.metrics import Metrics

_SLICE_S = 0.002  # of waiting for one group while others are waited for too
_MAX_UNITS = 1000  # calls of one drafter's `collect` in one step: a drafter that idles cannot hold up the engine

Choose = Callable[[Snapshot], Move]


class DraftGathering:
    """The waiting rule at work; see `waiting`. Its clock is that of the step, so that tests can own it."""

    def __init__(
        self, exchange: DraftExchange, *, choose: Choose, metrics: Metrics, clock: Callable[[], float]
    ) -> None:
        self._exchange = exchange
        self._choose = choose
        self._metrics = metrics
        self._clock = clock

    def gather(
        self, plan: StepPlan, sessions: Mapping[int, SessionLedger], pass_s: PassTimes, patience: float
    ) -> set[int]:
        """Take replies for the rows of ``plan``; returns those that are to be left out of this pass.

        ``sessions`` are by index of their row. A row that is left out is expected in the next plan; it is never
        left out twice in a row.
        """
        started = self._clock()
        wanted = {i: session for i, session in sessions.items() if plan.rows[i].max_drafts and session.awaits_reply}
        self._take_ready(wanted.values())
        left_out = self._await_remote(_Step(plan, sessions, wanted, pass_s, patience, started))
        for group in {session.group for session in wanted.values()}:
            self._metrics.observe(catalogue.DRAFT_WAIT, self._clock() - started, group=group)
        return left_out

    def _take_ready(self, wanted: Iterable[SessionLedger]) -> None:
        """What is there already, and what drafters of this process make of the pass's requests."""
        for group in self._exchange.groups.values():
            if not group.local:
                self._exchange.collect(group.name, 0.0)
            elif group.drafter.num_pending:
                self._work(group.name, [session for session in wanted if session.group == group.name])

    def _work(self, name: str, wanted: list[SessionLedger]) -> None:
        """Let a drafter of this process compute until the pass has what it wants; at least one unit."""
        drafter = self._exchange.groups[name].drafter
        for _ in range(_MAX_UNITS):
            self._exchange.collect(name, 0.0)
            if not drafter.num_pending or not any(session.awaits_reply for session in wanted):
                return

    def _await_remote(self, step: "_Step") -> set[int]:
        """Follow the rule until it says fill or go; returns the rows that are left out."""
        waited_for: set[int] = set()
        while True:
            rows = [index for index, session in step.wanted.items() if self._may_come(session)]
            if not rows:
                move = Move(Action.GO, (), 0.0)
                break
            move = self._choose(self._snapshot(step, rows))
            if move.action is not Action.WAIT:
                break
            chosen = [rows[index] for index in move.rows]
            waited_for.update(chosen)
            self._wait(step, chosen, move.longest_s)
        left_out = {rows[index] for index in move.rows}
        self._note_misses(step, waited_for - left_out, left_out)
        if step.wanted:
            self._metrics.count(catalogue.WAITING_MOVES, 1, move=("wait" if waited_for else move.action.value))
        return left_out

    def _may_come(self, session: SessionLedger) -> bool:
        """Whether a reply can be expected; one that failed to come is not waited for until another has."""
        group = self._exchange.groups[session.group]
        if group.local or group.pace.suspended or not session.awaits_reply or not session.warm or session.in_vain:
            return False
        return group.drafter.live and group.drafter.num_pending > 0

    def _wait(self, step: "_Step", chosen: list[int], longest_s: float) -> None:
        """Wait until any of the chosen rows has its reply, or for ``longest_s``."""
        sessions = [step.wanted[index] for index in chosen]
        give_up_at = self._clock() + longest_s
        while (left_s := give_up_at - self._clock()) > 0:
            groups = {session.group for session in sessions if self._may_come(session)}
            slice_s = left_s if len(groups) == 1 else min(left_s, _SLICE_S)
            for group in groups:
                self._exchange.collect(group, slice_s)
            if not groups or not all(session.awaits_reply for session in sessions):
                return
        for session in sessions:
            session.in_vain = session.awaits_reply

    def _note_misses(self, step: "_Step", waited_for: set[int], left_out: set[int]) -> None:
        """Rows that a wait or the last pass was given up for, and that have no reply all the same."""
        now = self._clock()
        for index, session in step.sessions.items():
            spent = index in waited_for or session.left_out_at is not None
            if spent and session.awaits_reply:
                session.in_vain = True
                self._exchange.groups[session.group].pace.miss()
            session.left_out_at = now if index in left_out else None

    def _snapshot(self, step: "_Step", rows: list[int]) -> Snapshot:
        now = self._clock()
        ready = [(row, step.sessions.get(i)) for i, row in enumerate(step.plan.rows) if i not in rows]
        decoding = sum(_expected(row, session) for row, session in ready if row.sequence.decoding)
        prompts = prompt_worth(step.plan.num_prefill_tokens, step.pass_s)
        return Snapshot(
            ready_tokens=sum(_tokens(row, session) for row, session in ready),
            ready_expected=decoding + prompts,
            outstanding=tuple(self._outstanding(step, index, now) for index in rows),
            pass_s=step.pass_s,
            waited_s=now - step.started,
            patience=step.patience,
        )

    def _outstanding(self, step: "_Step", index: int, now: float) -> Outstanding:
        row, session = step.plan.rows[index], step.wanted[index]
        size, asked_at = (session.newest.size, session.newest.at) if session.newest else (0, now)
        reply = self._exchange.groups[session.group].reply_times.expected(size)
        gone_s = now - asked_at
        deadline_ms = self._exchange.deadline_ms
        return Outstanding(
            tokens=row.stop - row.start,
            drafts=min(session.budget.max_nodes, row.max_drafts),
            expected_tokens=session.acceptance.expected_tokens(min(session.budget.max_depth, row.max_drafts)),
            reply_s=max(0.0, reply.mean_s - gone_s) if reply else float("inf"),
            reply_latest_s=reply.latest_s - gone_s if reply else float("inf"),
            deadline_s=deadline_ms / 1e3 - gone_s if deadline_ms else float("inf"),
            waited_s=now - (step.started if session.left_out_at is None else session.left_out_at),
            left_out=session.left_out_at is not None,
            held_drafts=_tokens(row, session) - (row.stop - row.start),
            held_expected=_expected(row, session),
        )


@dataclass(frozen=True, slots=True)
class _Step:
    """What stays the same while one pass is gathered for. Sessions are by index of their row."""

    plan: StepPlan
    sessions: Mapping[int, SessionLedger]
    wanted: Mapping[int, SessionLedger]  # whose proposals could go into this pass and were not there at its start
    pass_s: PassTimes
    patience: float
    started: float


def _tokens(row: PlannedRow, session: SessionLedger | None) -> int:
    """Tokens of a row in the pass, with the drafts that are there."""
    drafts = len(session.proposal.tree) if session and session.proposal else 0
    return row.stop - row.start + min(drafts, row.max_drafts)


def _expected(row: PlannedRow, session: SessionLedger | None) -> float:
    """Tokens that a decoding row commits in the pass on average."""
    if session is None or session.proposal is None or not row.max_drafts:
        return 1.0
    depths = session.proposal.tree.depths[: row.max_drafts]
    return session.acceptance.expected_tokens(max(depths, default=0))
