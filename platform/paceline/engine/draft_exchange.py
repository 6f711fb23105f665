"""Sends requests to drafters and takes in what they answer, whatever it is."""

import logging
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping

from paceline.core.drafts import (
    DraftBudget,
    DraftProposal,
    DraftRefusal,
    DraftReply,
    DraftRequest,
    DrawRule,
    NeedSync,
)
from paceline.engine.drafter_group import DrafterGroup, DrafterSlot
from paceline.engine.feature_feed import FeatureAllowance, FeatureFeed, FeatureSource
from paceline.engine.guarded_drafter import GuardedDrafter
from paceline.engine.reroot import reroot
from paceline.engine.session_ledger import Ask, SessionLedger
from paceline.telemetry import catalogue
from paceline.telemetry.metrics import Metrics

logger = logging.getLogger(__name__)

_MAX_RESENDS = 2  # of one request, after NEED_SYNC

Asking = tuple[SessionLedger, DraftBudget]


class DraftExchange:
    """All sessions at all groups. Requests are written and replies are checked here; nothing waits here."""

    def __init__(
        self,
        slots: Mapping[str, DrafterSlot],
        *,
        rule: DrawRule,
        vocab_size: int,
        features: FeatureSource | None,
        metrics: Metrics,
        clock: Callable[[], float],
    ) -> None:
        """``features`` are what the target keeps for drafters in other processes; None: nothing."""
        self.groups: Mapping[str, DrafterGroup] = {}  # replaced, never changed: other threads read it
        self.sessions: dict[str, SessionLedger] = {}  # by name
        self.deadline_ms = 0  # of a request; 0: none
        self._rule = rule
        self._vocab_size = vocab_size
        self._features = features
        self._allowance = FeatureAllowance()
        self._metrics = metrics
        self._clock = clock
        for name, slot in slots.items():
            self.add_group(name, slot)

    def add_group(self, name: str, slot: DrafterSlot) -> None:
        """Take up a group, behind those that are there."""
        guarded = GuardedDrafter(slot.drafter, group=name, metrics=self._metrics, clock=self._clock)
        self.groups = {**self.groups, name: DrafterGroup(name, guarded, slot.local)}

    def remove_group(self, name: str) -> None:
        """Forget a group that has no session any more."""
        self.groups = {group.name: group for group in self.groups.values() if group.name != name}

    def begin_step(self) -> None:
        """What is sent from now on belongs to another step."""
        self._allowance.renew()

    def add(self, session: SessionLedger) -> None:
        """Begin with a session; its drafter hears of it with the first request."""
        self.sessions[session.name] = session

    def drop(self, session: SessionLedger) -> None:
        """End a session, whatever is outstanding."""
        del self.sessions[session.name]
        self.groups[session.group].drafter.close([session.name])

    def ask(self, asking: Iterable[Asking], *, probe: bool = False) -> None:
        """Send what was committed and ask for proposals; ``probe``: for comparison, not for use."""
        now = self._clock()
        rows: defaultdict[str, list[tuple[SessionLedger, DraftRequest]]] = defaultdict(list)
        for session, budget in asking:
            feed = self._feed(session.group)
            request = session.ask(budget, deadline_ms=self.deadline_ms, now=now, probe=probe, feed=feed)
            if request is not None:
                rows[session.group].append((session, request))
        for group, pairs in rows.items():
            size = sum(request.budget.max_nodes for _, request in pairs)
            for session, _ in pairs:
                if session.warm and session.newest:
                    session.newest.size = size
            self._send(group, [request for _, request in pairs])

    def collect(self, group: str, timeout_s: float) -> bool:
        """Take in what a group has answered; True if there was anything."""
        started = self._clock()
        replies = self.groups[group].drafter.collect(timeout_s)
        if self.groups[group].local:
            self._note_draft_time(group, replies, self._clock() - started)
        resend = []
        for reply in replies:
            session = self.sessions.get(reply.session)
            if session is None or session.group != group:
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
        return bool(replies)

    def _feed(self, name: str) -> FeatureFeed | None:
        """Features that rows of a group carry; None where its drafter needs none, or the target keeps no such."""
        feature = self.groups[name].drafter.feature
        if feature is None or self._features is None or not self._features.keeps(feature):
            return None
        return FeatureFeed(self._features, feature, self._allowance)

    def _send(self, group: str, requests: list[DraftRequest]) -> None:
        drafter = self.groups[group].drafter
        openings = []
        for request in requests:
            session = self.sessions[request.session]
            if not session.opened:
                session.opened = True
                openings.append(session.opening(self._rule))
        if openings:
            drafter.open(openings)
        drafter.request(requests)
        self._metrics.count(catalogue.DRAFTER_CALLS, 1, group=group)

    def _receive(self, session: SessionLedger, proposal: DraftProposal) -> None:
        if not session.active:
            return  # speculation was turned off, or the group refused, since it was asked
        newest = proposal.base_length == session.sent_length
        for_use = not (newest and session.probing) and not session.shadow
        if newest:
            session.outstanding = False  # the answer to the newest request
        self._note_time(session, proposal, session.answered(proposal.base_length))
        session.warm, session.in_vain = not session.syncing, False
        plausible = self._plausible(proposal)
        if plausible and not for_use:
            session.watched = proposal if len(proposal.tree) else session.watched
            return
        fitted = reroot(proposal, session.sequence.tokens) if plausible else None
        if fitted is None:
            reason = "stale" if plausible else "invalid"
            self._metrics.count(catalogue.DROPPED_DRAFTS, 1, group=session.group, reason=reason)
            return
        if not len(fitted.tree):
            return  # nothing to propose, or all of it was committed meanwhile
        if fitted is not proposal:
            self._metrics.count(catalogue.REROOTED_DRAFTS, 1, group=session.group)
        # Of two usable ones the newer is taken, never the longer: what was drawn must not decide what is used.
        if session.proposal is None or proposal.base_length >= session.proposal_base:
            session.proposal, session.proposal_base = fitted, proposal.base_length

    def _note_time(self, session: SessionLedger, proposal: DraftProposal, ask: Ask | None) -> None:
        """Learn from when the reply came. Where the drafter does not know, it came now."""
        if ask is None:
            return
        group = self.groups[session.group]
        if ask.size:
            waited_s = self._clock() - ask.at if proposal.waited_s is None else proposal.waited_s
            group.reply_times.note(ask.size, waited_s)
        if len(session.sequence.tokens) - proposal.base_length < ask.depth:
            group.pace.hit()
        elif session.warm and not (ask.counted or group.local):
            group.pace.miss()

    def _note_draft_time(self, group: str, replies: Iterable[DraftReply], seconds: float) -> None:
        """Learn how long drafting kept this thread."""
        levels = [max(reply.tree.depths) for reply in replies if isinstance(reply, DraftProposal) and len(reply.tree)]
        if levels:
            self.groups[group].draft_times.note(max(levels), seconds)

    def _plausible(self, proposal: DraftProposal) -> bool:
        """Drafts are untrusted: a tree, every id a token of the target, and laws one per draft."""
        tree = proposal.tree
        in_range = all(0 <= token_id < self._vocab_size for token_id in tree.token_ids)
        return in_range and tree.is_valid and len(proposal.laws) in (0, len(tree))

    def _resync(self, session: SessionLedger, need: NeedSync) -> list[DraftRequest]:
        if not session.outstanding or session.resends >= _MAX_RESENDS:
            return []
        session.resends += 1
        session.warm = False
        for ask in session.asks.values():
            ask.size = 0  # the answer takes longer than others: the drafter computes the context first
        base = need.from_length if 0 < need.from_length <= len(session.sequence.tokens) else 0
        session.opened = session.opened and base > 0
        request = session.row_from(base, self.deadline_ms, self._feed(session.group))
        if session.syncing:
            session.asks.clear()  # drafts are asked for again with the last piece
        elif request is not None and session.newest is not None and request.budget.max_depth:
            session.asks[request.context_length] = session.newest  # more may have been committed since it was sent
        return [] if request is None else [request]

    def _pause(self, session: SessionLedger, refusal: DraftRefusal) -> None:
        session.outstanding = False
        session.asks.clear()
        retry_s = refusal.retry_after_ms / 1000 if refusal.retry_after_ms else float("inf")
        session.paused_until = self._clock() + retry_s
        logger.info("drafter group %s refused session %s: %s", session.group, session.name, refusal.reason)
