"""Drafts for the engine: asks for proposals and gathers them, without ever depending on an answer."""

import logging
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import replace
from typing import NamedTuple

from paceline.core.drafts import DraftBudget, DraftProposal, DrawRule
from paceline.core.load import DrafterGroupStatus
from paceline.engine.acceptance import AcceptanceEstimate
from paceline.engine.draft_depth import Prospect, best_depths
from paceline.engine.draft_exchange import Asking, DraftExchange
from paceline.engine.draft_gathering import Choose, DraftGathering
from paceline.engine.drafter_group import DrafterSlot
from paceline.engine.feature_feed import FeatureSource
from paceline.engine.reroot import shorten
from paceline.engine.sequence import Sequence
from paceline.engine.session_ledger import SessionLedger, session_name
from paceline.engine.shadow import ShadowSampler, settle
from paceline.engine.speculation_settings import SpeculationSettings
from paceline.engine.step_plan import Drafts, PlannedRow, StepPlan
from paceline.engine.step_time import PassTimeModel
from paceline.engine.waiting import choose
from paceline.telemetry import catalogue
from paceline.telemetry.metrics import Metrics

logger = logging.getLogger(__name__)

_COLD_TOKENS = 32  # of output since a session was woken, by which a drafter should have computed what it lacks
_ROUNDS_BETWEEN = 32  # of asking for more drafts than paid lately: about 3 %


class Gathered(NamedTuple):
    """What one pass runs: the plan, less the rows that join the next pass with their drafts."""

    plan: StepPlan
    drafts: Drafts


class Speculation:
    """Sessions of all sequences at all drafters.

    `request` sends what was committed and asks for the next proposals; `collect` takes what is there when
    the next pass starts, and waits as long as that commits more tokens per second. What comes later is
    re-rooted. The time from the end of `collect` to `request` is what the rule takes a pass to last.
    """

    def __init__(
        self,
        slots: Mapping[str, DrafterSlot],
        *,
        rule: DrawRule,
        vocab_size: int,
        settings: SpeculationSettings,
        metrics: Metrics,
        features: FeatureSource | None = None,
        choose: Choose = choose,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """``features`` are those that the target keeps, for drafters in other processes that need them."""
        self._exchange = DraftExchange(
            slots, rule=rule, vocab_size=vocab_size, features=features, metrics=metrics, clock=clock
        )
        self._gathering = DraftGathering(self._exchange, choose=choose, metrics=metrics, clock=clock)
        self._pass_times = PassTimeModel()
        self._pass: tuple[int, float] | None = None  # tokens and start of the pass that runs
        self._sampler = ShadowSampler()
        self._rule = rule
        self._metrics = metrics
        self._clock = clock
        self._by_sequence: dict[Sequence, SessionLedger] = {}
        self._shadows: dict[Sequence, list[SessionLedger]] = {}
        self.apply(settings)

    def apply(self, settings: SpeculationSettings) -> None:
        """Use other settings from the next step on."""
        self._settings = settings
        self._exchange.deadline_ms = settings.deadline_ms

    def draft_limit(self, sequence: Sequence) -> int:
        """Draft tokens that may be in the sequence's next pass: those that are there or under way."""
        session = self._by_sequence.get(sequence)
        if session is None:
            return 0
        under_way = session.awaits_reply and not self._exchange.groups[session.group].pace.suspended
        held = len(session.proposal.tree) if session.proposal else 0
        limit = self._settings.limit(session.group)
        return min(limit, max(held, session.budget.max_nodes if under_way else 0))

    def groups(self) -> tuple[DrafterGroupStatus, ...]:
        """State of every drafter group, for the router."""
        return tuple(group.status for group in self._exchange.groups.values())

    def add_group(self, name: str, slot: DrafterSlot) -> None:
        """Take up a drafter group; requests that name it from now on are drafted by it."""
        self._exchange.add_group(name, slot)

    def remove_group(self, name: str) -> None:
        """Let go of a drafter group; what it drafts for goes on plain."""
        for sequence, session in list(self._by_sequence.items()):
            if session.group == name:
                del self._by_sequence[sequence]
                self._drop(session)
        for sequence, shadows in list(self._shadows.items()):
            self._shadows[sequence] = [session for session in shadows if session.group != name]
            for session in shadows:
                if session.group == name:
                    self._drop(session)
        self._exchange.remove_group(name)

    @property
    def num_sessions(self) -> int:
        """Open sessions."""
        return len(self._exchange.sessions)

    def drafter_of(self, sequence: Sequence) -> str | None:
        """Group that drafts for a sequence."""
        session = self._by_sequence.get(sequence)
        return session.group if session else None

    def open(self, sequences: Iterable[Sequence]) -> None:
        """Begin a step: start sessions for admitted sequences, so that drafters prefill beside the target.

        A sequence that was pre-empted and is admitted again keeps the session that it has.
        """
        self._exchange.begin_step()
        prime: list[Asking] = []
        for sequence in sequences:
            if sequence in self._by_sequence or sequence in self._shadows:
                continue
            group = sequence.request.plan.drafter if sequence.request.plan.max_draft_tokens else None
            if group is not None and group not in self._exchange.groups:
                logger.warning("request %s names drafter group '%s', unknown here: it runs plain", sequence.key, group)
            elif group is not None:
                session = self._new_session(session_name(sequence.key, sequence.choice), group, sequence)
                self._by_sequence[sequence] = session
                if self._may_speculate(session, self._clock()):
                    prime.append((session, DraftBudget(0, 0)))
            self._open_shadows(sequence)
        self._exchange.ask(prime)

    def request(self, sequences: Iterable[Sequence]) -> None:
        """Send what these sequences committed and ask for their next proposals."""
        self._time_pass()
        self._follow_incarnations()
        now = self._clock()
        asking: list[Asking] = []
        probes: list[Asking] = []
        decoding = list(sequences)
        for sequence in decoding:
            session = self._by_sequence.get(sequence)
            if session is not None and (budget := self._next_budget(session, now)).max_depth:
                (probes if self._exchange.groups[session.group].pace.suspended else asking).append((session, budget))
            probes += self._shadow_requests(sequence, now)
        self._settle_paces()
        self._settle_worths()
        if self._settings.adaptive:
            asking = self._worth_asking(asking, probes, len(decoding))
        self._exchange.ask(asking)
        self._exchange.ask(self._due(probes), probe=True)
        self._exchange.ask(self._left_to_send({session for session, _ in (*asking, *probes)}, now))

    def close(self, sequence: Sequence) -> None:
        """End a sequence's sessions, whatever is outstanding."""
        own = self._by_sequence.pop(sequence, None)
        for session in (*([own] if own else []), *self._shadows.pop(sequence, ())):
            self._drop(session)

    def collect(self, plan: StepPlan) -> Gathered:
        """The rows to run now, with the proposals that are ready or worth waiting for."""
        started = self._clock()
        if self._exchange.sessions:
            sessions = {i: s for i, row in enumerate(plan.rows) if (s := self._by_sequence.get(row.sequence))}
            left_out = self._gathering.gather(plan, sessions, self._pass_times.times, self._settings.wait_share)
            plan = StepPlan([row for index, row in enumerate(plan.rows) if index not in left_out])
        proposals = [self._take(row) for row in plan.rows]
        tokens = sum(row.stop - row.start for row in plan.rows) + sum(len(p.tree) for p in proposals if p)
        now = self._clock()
        self._pass = (tokens, now)
        return Gathered(plan, Drafts(proposals, now - started))

    def _drop(self, session: SessionLedger) -> None:
        self._compare(session, final=True)
        self._exchange.drop(session)

    def _new_session(self, name: str, group: str, sequence: Sequence, *, shadow: bool = False) -> SessionLedger:
        estimate = AcceptanceEstimate(self._exchange.groups[group].acceptance)
        session = SessionLedger(name, group, sequence, estimate, shadow)
        self._exchange.add(session)
        return session

    def _may_speculate(self, session: SessionLedger, now: float) -> bool:
        active = self._settings.limit(session.group) > 0 and self._answers(session, now)
        if session.active is not None and session.active != active:
            session.sequence.switches += 1
        if active and not session.active:
            # The drafter computes what it has missed before it answers.
            session.warm, session.awake_since = False, session.sequence.num_output
        session.active = active
        if not active:
            session.outstanding = False
            session.proposal = None
            session.asks.clear()  # what comes late now is no sign that the group is slow
        return active

    def _answers(self, session: SessionLedger, now: float) -> bool:
        """Whether a request sent now can be expected to be answered at all."""
        return self._exchange.groups[session.group].drafter.live and now >= session.paused_until

    def _next_budget(self, session: SessionLedger, now: float) -> DraftBudget:
        """What a sequence's own session asks for after a round; nothing where the answer ends with the next token."""
        session.learn()
        self._compare(session)
        if not self._may_speculate(session, now):
            return DraftBudget(0, 0)
        sequence = session.sequence
        budget = self._settings.budget(session.group, sequence.request.plan.max_draft_tokens, sequence.tokens_left)
        group = self._exchange.groups[session.group]
        if session.syncing:
            session.awake_since = sequence.num_output  # it has not been told yet what to compute
        late = session.overdue() if session.warm else sequence.num_output - session.awake_since >= _COLD_TOKENS
        if budget.max_depth and late and not group.local:
            group.pace.miss()
        return budget

    def _worth_asking(self, asking: list[Asking], probes: list[Asking], num_rows: int) -> list[Asking]:
        """Cut budgets to what pays in a pass of ``num_rows``; now and then a sequence asks for twice as many levels.

        That is what finds out when more pays again. Where nothing does, and a comparison says as much as
        verification, no pass contains those drafts: they go to ``probes``, whole.
        """
        prospects = [
            Prospect(session.acceptance.reach(budget.max_depth), budget.max_nodes / budget.max_depth)
            for session, budget in asking
        ]
        groups = [self._exchange.groups[name] for name in dict.fromkeys(session.group for session, _ in asking)]
        here = [group.draft_times for group in groups if group.local]
        depths = best_depths(
            prospects,
            num_rows - len(asking),
            self._pass_times.times,
            lambda levels: sum(times(levels) for times in here),
        )
        kept: list[Asking] = []
        for (session, budget), depth in zip(asking, depths, strict=True):
            session.rounds_cut = session.rounds_cut + 1 if depth < budget.max_depth else 0
            explores = session.rounds_cut > 0 and session.rounds_cut % _ROUNDS_BETWEEN == 0
            if explores and not depth and self._rule is DrawRule.COUPLED:
                probes.append((session, budget))
            elif explores or depth:
                kept.append((session, _cut(budget, min(budget.max_depth, 2 * depth + 1 if explores else depth))))
        return kept

    def _left_to_send(self, asked: AbstractSet[SessionLedger], now: float) -> Iterator[Asking]:
        """Sessions whose tokens go out piece by piece, beside the target's prefill; not those just ``asked``."""
        for session in list(self._exchange.sessions.values()):
            wanted = session.syncing and session.active and session not in asked
            if wanted and self._settings.limit(session.group) > 0 and self._answers(session, now):
                yield session, DraftBudget(0, 0)

    def _follow_incarnations(self) -> None:
        for group in self._exchange.groups.values():
            group.pace.follow(group.drafter.incarnation)

    def _settle_paces(self) -> None:
        for group in self._exchange.groups.values():
            if group.pace.settle():
                self._metrics.count(catalogue.SUSPENSIONS, 1, group=group.name)
                logger.info(
                    "drafter group %s does not keep pace: it is only probed until it answers in time", group.name
                )

    def _settle_worths(self) -> None:
        for group in self._exchange.groups.values():
            depth = self._settings.limit(group.name)
            group.worth.settle(group.acceptance, group.wait_s, self._pass_times.times, depth=depth)

    def _open_shadows(self, sequence: Sequence) -> None:
        share = self._settings.shadow_share
        if not share:
            return
        own, name = self.drafter_of(sequence), session_name(sequence.key, sequence.choice)
        for group in self._exchange.groups.values():
            # One of this process would draft in the target's time.
            if group.local or group.name == own or not (self._settings.limit(group.name) and group.drafter.live):
                continue
            if self._sampler.takes(group.name, share):
                session = self._new_session(f"{name}@{group.name}", group.name, sequence, shadow=True)
                self._shadows.setdefault(sequence, []).append(session)

    def _shadow_requests(self, sequence: Sequence, now: float) -> Iterator[Asking]:
        for session in self._shadows.get(sequence, ()):
            self._compare(session)
            budget = self._settings.budget(session.group, self._settings.max_draft_tokens, sequence.tokens_left)
            session.active = budget.max_depth > 0 and self._answers(session, now)
            if session.active and session.watched is None and self._sampler.takes_round(session):
                yield session, budget

    def _due(self, probes: Iterable[Asking]) -> Iterator[Asking]:
        """Requests for comparison that are to be sent; of a suspended group one, now and then."""
        seen: set[str] = set()
        for session, budget in probes:
            pace = self._exchange.groups[session.group].pace
            if not pace.suspended:
                yield session, budget
            elif session.group not in seen:
                seen.add(session.group)
                if pace.may_probe():
                    yield session, budget

    def _compare(self, session: SessionLedger, *, final: bool = False) -> None:
        """Hold a proposal that no pass contained against what was committed; learn from it where that is exact."""
        found = settle(session, self._metrics, final=final)
        if found is not None and self._rule is DrawRule.COUPLED:
            session.acceptance.note(found.tested, found.accepted)

    def _time_pass(self) -> None:
        """Learn how long the pass since the last `collect` took."""
        if self._pass is not None:
            num_tokens, started = self._pass
            self._pass_times.observe(num_tokens, self._clock() - started)
            self._pass = None

    def _take(self, row: PlannedRow) -> DraftProposal | None:
        session = self._by_sequence.get(row.sequence)
        if session is None or session.proposal is None or row.max_drafts == 0:
            return None
        proposal, session.proposal = session.proposal, None
        if not len(proposal.tree) or proposal.base_length != len(row.sequence.tokens):
            return None
        return shorten(proposal, max_nodes=row.max_drafts, max_depth=row.sequence.tokens_left - 1)


def _cut(budget: DraftBudget, depth: int) -> DraftBudget:
    """A budget of the same width and less depth."""
    return replace(budget, max_depth=depth, max_nodes=-(-budget.max_nodes * depth // budget.max_depth))
