"""The border at which a drafter's fault stops: it costs drafts, never a request."""

import logging
import time
from collections.abc import Callable, Sequence
from typing import Protocol, TypeVar, runtime_checkable

from paceline.core.drafts import DraftOpening, DraftRefusal, DraftReply, DraftRequest
from paceline.core.model_identity import FeatureFacts
from paceline.drafting.drafter import Drafter
from paceline.drafting.matching import DrafterFacts
from paceline.telemetry import catalogue
from paceline.telemetry.metrics import Metrics

logger = logging.getLogger(__name__)

_FIRST_PAUSE_S = 1.0
_LONGEST_PAUSE_S = 60.0

T = TypeVar("T")


@runtime_checkable
class LinkedDrafter(Protocol):
    """What a drafter in another process tells beside its drafts."""

    @property
    def incarnation(self) -> str:
        """Name of the process behind the link; empty before the first one."""

    @property
    def facts(self) -> DrafterFacts | None:
        """What that process said it is; None before the first one."""


class GuardedDrafter:
    """Implements `Drafter` over one that may raise.

    After an exception the group counts as not live for a while, longer each time in a row; all its
    sessions are dropped, and rows that wait are refused.
    """

    def __init__(
        self, inner: Drafter, *, group: str, metrics: Metrics, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._inner = inner
        self._linked = inner if isinstance(inner, LinkedDrafter) else None
        self._group = group
        self._metrics = metrics
        self._clock = clock
        self._sessions: set[str] = set()
        self._waiting: set[str] = set()
        self._refused: list[DraftReply] = []
        self._pause_s = 0.0
        self._paused_until = 0.0
        self._fault = ""

    @property
    def method(self) -> str:
        """Method of the drafter inside."""
        return self._inner.method

    @property
    def live(self) -> bool:
        """Whether the drafter is live and has not raised lately."""
        return self._clock() >= self._paused_until and self._peek(lambda: self._inner.live, otherwise=False)

    @property
    def detail(self) -> str:
        """Why it is not live."""
        return self._fault if self._clock() < self._paused_until else self._peek(lambda: self._inner.detail, "unknown")

    @property
    def incarnation(self) -> str:
        """Name of the process that drafts; empty for one of this process, and before the first link."""
        return self._linked.incarnation if self._linked else ""

    @property
    def feature(self) -> FeatureFacts | None:
        """Feature that must go along with the tokens; a drafter of this process reads it where the target keeps it."""
        facts = self._linked.facts if self._linked else None
        return facts.feature if facts else None

    @property
    def num_pending(self) -> int:
        """Requests without a reply."""
        return len(self._refused) + self._guard(lambda: self._inner.num_pending, 0)

    def open(self, openings: Sequence[DraftOpening]) -> None:
        """Open sessions."""
        self._sessions.update(opening.session for opening in openings)
        self._guard(lambda: self._inner.open(openings), None)

    def request(self, rows: Sequence[DraftRequest]) -> None:
        """Ask for proposals."""
        self._waiting.update(row.session for row in rows)
        self._guard(lambda: self._inner.request(rows), None)

    def collect(self, timeout_s: float) -> list[DraftReply]:
        """Replies that are ready, refusals after a fault among them."""
        nothing: list[DraftReply] = []
        replies = self._guard(lambda: self._inner.collect(timeout_s), nothing)
        if replies:
            self._pause_s = 0.0
        replies, self._refused = [*self._refused, *replies], []
        self._waiting.difference_update(reply.session for reply in replies)
        return replies

    def close(self, sessions: Sequence[str]) -> None:
        """Drop sessions."""
        self._sessions.difference_update(sessions)
        self._waiting.difference_update(sessions)
        self._guard(lambda: self._inner.close(sessions), None)

    def _peek(self, read: Callable[[], T], otherwise: T) -> T:
        """Read a property; changes nothing, because other threads ask for the state too."""
        try:
            return read()
        except Exception:  # noqa: BLE001 - as in `_guard`; nothing to log but the fact
            logger.debug("drafter group %s raised while it was asked for its state", self._group)
            return otherwise

    def _guard(self, call: Callable[[], T], otherwise: T) -> T:
        try:
            return call()
        except Exception as error:  # whatever a drafter raises must not end the step
            logger.exception("drafter group %s raised", self._group)
            self._fail(type(error).__name__)
            return otherwise

    def _fail(self, name: str) -> None:
        self._metrics.count(catalogue.DRAFTER_FAILURES, 1, group=self._group)
        self._pause_s = min(max(2 * self._pause_s, _FIRST_PAUSE_S), _LONGEST_PAUSE_S)
        self._paused_until = self._clock() + self._pause_s
        self._fault = f"raised {name}"
        pause_ms = int(self._pause_s * 1e3)
        self._refused += [DraftRefusal(session, "DRAFTER_FAILED", pause_ms) for session in sorted(self._waiting)]
        self._waiting.clear()
        sessions, self._sessions = list(self._sessions), set()
        try:
            self._inner.close(sessions)
        except Exception:  # it is broken already; what it holds is its own process's or ours to lose
            logger.exception("drafter group %s raised while its sessions were dropped", self._group)
