"""Asks drafters for proposals and gathers them, without ever depending on an answer."""

import logging
import time
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from paceline.core.drafts import DraftProposal, DraftRefusal, DraftReply, DraftRequest, DrawRule, NeedSync
from paceline.core.load import DrafterGroupStatus
from paceline.drafting.drafter import Drafter
from paceline.engine.guarded_drafter import GuardedDrafter
from paceline.engine.reroot import reroot, shorten
from paceline.engine.sequence import Sequence
from paceline.engine.session_ledger import SessionLedger
from paceline.engine.step_plan import Drafts, PlannedRow, StepPlan
from paceline.telemetry import catalogue
from paceline.telemetry.metrics import Metrics

logger = logging.getLogger(__name__)

_MAX_RESENDS = 2  # of one request, after NEED_SYNC
_SLICE_S = 0.002  # of waiting for one group while others are waited for too
_MAX_UNITS = 1000  # calls of one drafter's `collect` in one step: a drafter that idles cannot hold up the engine


@dataclass(frozen=True, slots=True)
class DrafterSlot:
    """A drafter group that this engine can use."""

    drafter: Drafter
    local: bool  # in this process: collecting computes, so there is nothing to wait for


@dataclass(frozen=True, slots=True)
class SpeculationSettings:
    """Tunables of speculation; see `config.schema.Tunables`."""

    enabled: bool
    max_draft_tokens: int
    wait_share: float  # of the measured step time
    deadline_ms: int


class Speculation:
    """Sessions of all sequences at all drafters.

    `request` sends what was committed and asks for the next proposals; `collect` takes what is there
    when the next pass starts. A row whose reply is late goes plain in that pass; its reply is
    re-rooted when it comes.
    """

    def __init__(
        self,
        slots: Mapping[str, DrafterSlot],
        *,
        rule: DrawRule,
        vocab_size: int,
        settings: SpeculationSettings,
        metrics: Metrics,
    ) -> None:
        self._settings = settings
        self.step_time_s = 0.0  # mean of recent passes; the engine keeps it up to date
        self._slots = {
            name: DrafterSlot(GuardedDrafter(slot.drafter, group=name, metrics=metrics), slot.local)
            for name, slot in slots.items()
        }
        self._rule = rule
        self._vocab_size = vocab_size
        self._metrics = metrics
        self._sessions: dict[str, SessionLedger] = {}  # by session name
        self._by_sequence: dict[Sequence, SessionLedger] = {}

    def apply(self, settings: SpeculationSettings) -> None:
        """Use other settings from the next step on."""
        self._settings = settings

    @property
    def max_draft_tokens(self) -> int:
        """Draft tokens per sequence and step that the settings allow at this moment."""
        return self._settings.max_draft_tokens if self._settings.enabled else 0

    def groups(self) -> tuple[DrafterGroupStatus, ...]:
        """State of every drafter group, for the router."""
        return tuple(
            DrafterGroupStatus(name, slot.drafter.method, slot.drafter.live, slot.drafter.detail)
            for name, slot in self._slots.items()
        )

    @property
    def num_sessions(self) -> int:
        """Open sessions."""
        return len(self._sessions)

    def drafter_of(self, sequence: Sequence) -> str | None:
        """Group that drafts for a sequence."""
        session = self._by_sequence.get(sequence)
        return session.group if session else None

    def open(self, sequences: Iterable[Sequence]) -> None:
        """Start sessions for admitted sequences, so that drafters prefill beside the target."""
        prime: list[Sequence] = []
        for sequence in sequences:
            group = sequence.request.plan.drafter
            if group is None or not sequence.request.plan.max_draft_tokens:
                continue
            if group not in self._slots:
                logger.warning("request %s names drafter group '%s', unknown here: it runs plain", sequence.key, group)
                continue
            session = SessionLedger(f"{sequence.key}#{sequence.choice}", group, sequence)
            self._sessions[session.name] = session
            self._by_sequence[sequence] = session
            prime.append(sequence)
        self._ask(prime, prime=True)

    def request(self, sequences: Iterable[Sequence]) -> None:
        """Send what these sequences committed and ask for their next proposals."""
        self._ask(sequences, prime=False)

    def close(self, sequence: Sequence) -> None:
        """End a sequence's session, whatever is outstanding."""
        session = self._by_sequence.pop(sequence, None)
        if session is not None:
            del self._sessions[session.name]
            self._slots[session.group].drafter.close([session.name])

    def collect(self, plan: StepPlan) -> Drafts:
        """Proposals for the rows of ``plan``: those ready, and those worth waiting for."""
        started = time.monotonic()
        if self._sessions:
            self._gather(plan, started)
        proposals = [self._take(row) for row in plan.rows]
        return Drafts(proposals, time.monotonic() - started)

    def _ask(self, sequences: Iterable[Sequence], *, prime: bool) -> None:
        now = time.monotonic()
        rows: defaultdict[str, list[DraftRequest]] = defaultdict(list)
        for sequence in sequences:
            session = self._by_sequence.get(sequence)
            if session is None or not self._may_speculate(session, now):
                continue
            limit = min(self.max_draft_tokens, sequence.request.plan.max_draft_tokens)
            depth = 0 if prime else min(limit, sequence.tokens_left - 1)
            if depth == 0 and not prime:
                continue  # the answer ends with the next token
            rows[session.group].append(session.ask(depth, self._settings.deadline_ms))
        for group, requests in rows.items():
            self._send(group, requests)

    def _may_speculate(self, session: SessionLedger, now: float) -> bool:
        live = self._slots[session.group].drafter.live
        active = self.max_draft_tokens > 0 and live and now >= session.paused_until
        if session.active is not None and session.active != active:
            session.sequence.switches += 1
        session.active = active
        if not active:
            session.outstanding = False
            session.proposal = None
        return active

    def _send(self, group: str, requests: list[DraftRequest]) -> None:
        drafter = self._slots[group].drafter
        openings = []
        for request in requests:
            session = self._sessions[request.session]
            if not session.opened:
                session.opened = True
                openings.append(session.opening(self._rule))
        if openings:
            drafter.open(openings)
        drafter.request(requests)
        self._metrics.count(catalogue.DRAFTER_CALLS, 1, group=group)

    def _gather(self, plan: StepPlan, started: float) -> None:
        """Take ready replies of every drafter; local ones work for theirs, remote ones are waited for a little."""
        wanted = self._wanted(plan)
        for group, slot in self._slots.items():
            if not slot.local:
                self._apply(group, slot.drafter.collect(0.0))
            elif slot.drafter.num_pending:
                self._work(group, wanted[group])
        self._wait(wanted, started + self._settings.wait_share * self.step_time_s)
        for group in (group for group, sessions in wanted.items() if sessions):
            self._metrics.observe(catalogue.DRAFT_WAIT, time.monotonic() - started, group=group)

    def _wanted(self, plan: StepPlan) -> defaultdict[str, list[SessionLedger]]:
        """Sessions, by group, whose proposal could go into this pass and is not there."""
        wanted: defaultdict[str, list[SessionLedger]] = defaultdict(list)
        for row in plan.rows:
            session = self._by_sequence.get(row.sequence)
            if session and row.max_drafts and session.outstanding and session.asked_depth:
                wanted[session.group].append(session)
        return wanted

    def _work(self, group: str, wanted: list[SessionLedger]) -> None:
        """Let a drafter of this process compute until the pass has what it wants; at least one unit."""
        drafter = self._slots[group].drafter
        for _ in range(_MAX_UNITS):
            self._apply(group, drafter.collect(0.0))
            if not drafter.num_pending or not any(session.awaits_reply for session in wanted):
                return

    def _wait(self, wanted: Mapping[str, list[SessionLedger]], give_up_at: float) -> None:
        """Wait for all remote groups together; never for a row that was waited for in vain the last time."""
        remote = {group: sessions for group, sessions in wanted.items() if not self._slots[group].local}
        waited_for: set[str] = set()
        while (left_s := give_up_at - time.monotonic()) > 0:
            missing = {group: names for group, sessions in remote.items() if (names := self._missing(group, sessions))}
            if not missing:
                break
            for group, names in missing.items():
                waited_for.update(names)
                slice_s = left_s if len(missing) == 1 else min(left_s, _SLICE_S)
                self._apply(group, self._slots[group].drafter.collect(slice_s))
        for session in (session for sessions in remote.values() for session in sessions):
            session.waited = session.name in waited_for and session.awaits_reply

    def _missing(self, group: str, sessions: list[SessionLedger]) -> list[str]:
        drafter = self._slots[group].drafter
        if not (drafter.live and drafter.num_pending):
            return []
        return [session.name for session in sessions if session.awaits_reply and not session.waited]

    def _apply(self, group: str, replies: list[DraftReply]) -> None:
        resend = []
        for reply in replies:
            session = self._sessions.get(reply.session)
            if session is None:
                continue  # closed meanwhile
            match reply:
                case DraftProposal():
                    self._receive(session, reply)
                case NeedSync():
                    resend.extend(self._resync(session, reply))
                case DraftRefusal():
                    self._pause(session, reply)
        if resend:
            self._send(group, resend)

    def _receive(self, session: SessionLedger, proposal: DraftProposal) -> None:
        if not session.active:
            return  # speculation was turned off, or the group refused, since it was asked
        if proposal.base_length == session.sent_length:
            session.outstanding = False  # the answer to the newest request
        plausible = self._plausible(proposal)
        fitted = reroot(proposal, session.sequence.tokens) if plausible else None
        if fitted is None:
            reason = "stale" if plausible else "invalid"
            self._metrics.count(catalogue.DROPPED_DRAFTS, 1, group=session.group, reason=reason)
            return
        if fitted is not proposal:
            self._metrics.count(catalogue.REROOTED_DRAFTS, 1, group=session.group)
        # Of two usable ones the newer is taken, never the longer: what was drawn must not decide what is used.
        if session.proposal is None or proposal.base_length >= session.proposal_base:
            session.proposal, session.proposal_base = fitted, proposal.base_length

    def _plausible(self, proposal: DraftProposal) -> bool:
        """Drafts are untrusted: a tree, every id a token of the target, and laws one per draft."""
        tree = proposal.tree
        in_range = all(0 <= token_id < self._vocab_size for token_id in tree.token_ids)
        return in_range and tree.is_valid and len(proposal.laws) in (0, len(tree))

    def _resync(self, session: SessionLedger, need: NeedSync) -> list[DraftRequest]:
        if not session.outstanding or session.resends >= _MAX_RESENDS:
            return []
        session.resends += 1
        base = need.from_length if 0 < need.from_length <= len(session.sequence.tokens) else 0
        session.opened = session.opened and base > 0
        return [session.row_from(base, session.asked_depth, self._settings.deadline_ms)]

    def _pause(self, session: SessionLedger, refusal: DraftRefusal) -> None:
        session.outstanding = False
        retry_s = refusal.retry_after_ms / 1000 if refusal.retry_after_ms else float("inf")
        session.paused_until = time.monotonic() + retry_s
        logger.info("drafter group %s refused session %s: %s", session.group, session.name, refusal.reason)

    def _take(self, row: PlannedRow) -> DraftProposal | None:
        session = self._by_sequence.get(row.sequence)
        if session is None or session.proposal is None or row.max_drafts == 0:
            return None
        proposal, session.proposal = session.proposal, None
        return shorten(proposal, row.max_drafts) if len(proposal.tree) else None
