"""The one thread that works a drafter for all links of its replica."""

import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial

from paceline.core.drafts import DraftBudget, DraftOpening, DraftRefusal, DraftReply, DraftRequest, NeedSync
from paceline.core.load import DrafterLoad
from paceline.drafting.drafter import Drafter
from paceline.rpc.busy_meter import BusyMeter
from paceline.rpc.session_leases import LinkPort, SessionLeases
from paceline.telemetry import catalogue
from paceline.telemetry.metrics import Metrics

logger = logging.getLogger(__name__)

_IDLE_WAIT_S = 0.25  # how late a lease may be noticed to have run out
_COLLECT_WAIT_S = 0.005  # only a drafter that waits for others uses it up
_AFTER_FAILURE_MS = 1000
_SYNC_ONLY = DraftBudget(0, 0)


@dataclass(frozen=True, slots=True)
class LinkWork:
    """What one message of a target asks for."""

    port: LinkPort
    openings: tuple[DraftOpening, ...]
    rows: tuple[DraftRequest, ...]
    closes: tuple[str, ...]
    received_at: float  # clock time; deadlines count from here


class DrafterLoop:
    """Feeds a drafter what links bring in and hands back each answer as it gets ready.

    A drafter that raises costs the sessions at hand their drafts; the thread and all others go on.
    """

    def __init__(
        self,
        drafter: Drafter,
        *,
        group: str,
        metrics: Metrics,
        ttl_s: float,
        max_sessions: int,
        max_queued_rows: int,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._drafter = drafter
        self._group = group
        self._metrics = metrics
        self._leases = SessionLeases(ttl_s)
        self._max_sessions = max_sessions
        self._max_queued_rows = max_queued_rows
        self._clock = clock
        self._busy = BusyMeter()
        self._answering: set[str] = set()  # drafter's names of sessions that wait for an answer
        self._inbox: deque[Callable[[], None]] = deque()
        self._num_queued_rows = 0
        self._changed = threading.Condition()
        self._stopping = False
        self._thread = threading.Thread(target=self._run, name=f"drafter-{group}", daemon=True)
        self._thread.start()

    @property
    def alive(self) -> bool:
        """Whether the thread runs."""
        return self._thread.is_alive()

    def load(self) -> DrafterLoad:
        """Load at this moment; may be called from any thread."""
        pending = self._num_queued_rows + len(self._answering)
        return DrafterLoad(len(self._leases), pending, self._busy.share(time.monotonic()))

    def submit(self, work: LinkWork) -> bool:
        """Queue a message; False, and its rows are left out, if too many rows wait already.

        Sessions are opened and closed all the same: the target says so once only.
        """
        with self._changed:
            fits = self._num_queued_rows + len(work.rows) <= self._max_queued_rows
            if not fits:
                work = replace(work, rows=())
            self._num_queued_rows += len(work.rows)
            if work.rows or work.openings or work.closes:
                self._inbox.append(partial(self._apply, work))
                self._changed.notify()
        return fits

    def end_link(self, link_id: int) -> None:
        """Drop all sessions of a link, once what it sent before has been looked at."""
        with self._changed:
            self._inbox.append(partial(self._end_link, link_id))
            self._changed.notify()

    def stop(self, timeout_s: float = 5.0) -> None:
        """End the thread after the unit of work at hand."""
        with self._changed:
            self._stopping = True
            self._changed.notify()
        self._thread.join(timeout_s)

    def _run(self) -> None:
        while not self._stopping:
            actions = self._next_actions()
            started = time.monotonic()
            try:
                self._turn(actions)
            except Exception:  # the border of the thread: without it every link of the replica would go silent
                logger.exception("the drafting loop of group %s failed", self._group)
                time.sleep(_IDLE_WAIT_S)
            if actions or self._answering:
                self._busy.add(started, time.monotonic())
            self._metrics.set(catalogue.DRAFTER_SESSIONS, len(self._leases), group=self._group)
            self._metrics.set(catalogue.DRAFTER_PENDING, len(self._answering), group=self._group)

    def _next_actions(self) -> list[Callable[[], None]]:
        with self._changed:
            if not self._inbox and not self._answering and not self._stopping:
                self._changed.wait(_IDLE_WAIT_S)
            actions = list(self._inbox)
            self._inbox.clear()
        return actions

    def _turn(self, actions: Sequence[Callable[[], None]]) -> None:
        for action in actions:
            action()
        if self._answering:
            self._collect()
        silent = self._leases.silent_names(self._clock())
        if silent:
            logger.info("drafter group %s drops %s silent sessions", self._group, len(silent))
            self._close(silent)

    def _apply(self, work: LinkWork) -> None:
        with self._changed:
            self._num_queued_rows -= len(work.rows)
        self._metrics.count(catalogue.DRAFTER_ROWS, len(work.rows), group=self._group)
        refused = self._open(work)
        rows: list[DraftRequest] = []
        for row in work.rows:
            named = self._leases.renew(work.port, row, self._clock())
            if named is not None:
                rows.append(self._unless_late(named, work.received_at))
            elif row.session not in refused:
                work.port.deliver([NeedSync(row.session, 0)])
        if rows:
            self._answering.update(row.session for row in rows)
            self._guarded(lambda: self._drafter.request(rows), [row.session for row in rows])
        self._close(self._leases.names_of(work.port, work.closes))

    def _open(self, work: LinkWork) -> set[str]:
        """Open the message's sessions; return those that were refused."""
        fitting, refused = self._fitting(work)
        if refused:
            self._refuse(work.port, refused, "OVERLOADED")
        named = [self._leases.open(work.port, opening, self._clock()) for opening in fitting]
        if named and not self._guarded(lambda: self._drafter.open(named), [opening.session for opening in named]):
            refused = [opening.session for opening in work.openings]
        return set(refused)

    def _fitting(self, work: LinkWork) -> tuple[list[DraftOpening], list[str]]:
        """Openings that there is room for, and the sessions of the others; one that is open already needs none."""
        room = self._max_sessions - len(self._leases)
        fitting: list[DraftOpening] = []
        refused: list[str] = []
        for opening in work.openings:
            if self._leases.names_of(work.port, [opening.session]):
                fitting.append(opening)
            elif room > 0:
                fitting.append(opening)
                room -= 1
            else:
                refused.append(opening.session)
        return fitting, refused

    def _unless_late(self, row: DraftRequest, received_at: float) -> DraftRequest:
        # A late draft is of no use, but the tokens are: the next row builds on them.
        late = row.deadline_ms and (self._clock() - received_at) * 1e3 > row.deadline_ms
        if not late:
            return row
        self._metrics.count(catalogue.DRAFTER_DROPS, 1, group=self._group, reason="late")
        return replace(row, budget=_SYNC_ONLY)

    def _collect(self) -> None:
        started = time.monotonic()
        replies: list[DraftReply] = []
        self._guarded(lambda: replies.extend(self._drafter.collect(_COLLECT_WAIT_S)), list(self._answering))
        self._metrics.observe(catalogue.DRAFT_TIME, time.monotonic() - started, group=self._group)
        by_port: dict[int, tuple[LinkPort, list[DraftReply]]] = {}
        for reply in replies:
            self._answering.discard(reply.session)
            lease = self._leases.get(reply.session)
            if lease is not None:
                _, ready = by_port.setdefault(lease.port.link_id, (lease.port, []))
                ready.append(replace(reply, session=lease.session))
        for port, ready in by_port.values():
            port.deliver(ready)
        if not self._drafter.num_pending:
            self._answering.clear()  # it may give no answer at all

    def _close(self, names: list[str]) -> None:
        if not names:
            return
        self._answering.difference_update(names)
        self._leases.drop(names)
        self._guarded(lambda: self._drafter.close(names), [])

    def _end_link(self, link_id: int) -> None:
        self._close(self._leases.names_of_link(link_id))

    def _guarded(self, call: Callable[[], None], names: list[str]) -> bool:
        """Run a call of the drafter; if it raises, ``names`` lose their sessions and are told so."""
        try:
            call()
        except Exception:  # a broken method costs speed, never a request
            logger.exception("drafter group %s failed; %s sessions lose their drafts", self._group, len(names))
            self._metrics.count(catalogue.DRAFTER_FAILURES, 1, group=self._group)
            leases = [lease for name in names if (lease := self._leases.get(name)) is not None]
            self._close([lease.name for lease in leases])
            for lease in leases:
                self._refuse(lease.port, [lease.session], "DRAFTER_FAILED")
            return False
        return True

    def _refuse(self, port: LinkPort, sessions: list[str], reason: str) -> None:
        port.deliver([DraftRefusal(session, reason, _AFTER_FAILURE_MS) for session in sessions])
