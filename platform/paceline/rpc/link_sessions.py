"""What a target knows of its sessions at one remote drafter group, and what it still has to send."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from paceline.core.drafts import (
    DraftBudget,
    DraftOpening,
    DraftProposal,
    DraftReply,
    DraftRequest,
    NeedSync,
)
from paceline.rpc.draft_checks import fault_of
from paceline.rpc.row_parts import join

_ASKED_MEMORY = 8  # newest requests of a session whose late proposals are still looked at


class Outgoing(NamedTuple):
    """What the next message to the drafter carries."""

    openings: list[DraftOpening]
    rows: list[DraftRequest]
    closes: list[str]


class Admission(NamedTuple):
    """What becomes of a reply."""

    reply: DraftReply | None  # for the engine
    dropped: str | None = None  # reason, where there is none
    waited_s: float | None = None  # since the request that it answers; None: it answers no open request


class _Asked(NamedTuple):
    budget: DraftBudget
    at: float


@dataclass(slots=True)
class _Session:
    opening: DraftOpening
    announced: bool = False  # the drafter behind the present link has the opening
    unsent: DraftRequest | None = None
    base_length: int = 0  # of the newest row: what it takes the drafter to have
    awaited_length: int | None = None  # context length of the request without an answer
    asked_at: float = 0.0
    deadline_at: float = 0.0  # 0: none
    asked: dict[int, _Asked] = field(default_factory=dict)  # by context length, newest last


class LinkSessions:
    """State only: no threads, no transport. Times are seconds of one monotonic clock.

    Rows that wait to be sent are merged per session, so what waits is bounded by what is open,
    however slow the transport is.
    """

    def __init__(self, vocabulary_size: int) -> None:
        self._vocabulary_size = vocabulary_size
        self._sessions: dict[str, _Session] = {}
        self._closes: dict[str, None] = {}
        self._lost: dict[str, None] = {}  # asked while no link was up, or when it broke
        self._up = False

    def open(self, openings: Sequence[DraftOpening]) -> None:
        """Note openings; each travels with its session's first row."""
        for opening in openings:
            self._closes.pop(opening.session, None)
            self._lost.pop(opening.session, None)
            self._sessions[opening.session] = _Session(opening)

    def close(self, names: Sequence[str]) -> None:
        """Forget sessions, and have the drafter forget those that it knows."""
        for name in names:
            session = self._sessions.pop(name, None)
            self._lost.pop(name, None)
            if session is not None and session.announced:
                self._closes[name] = None

    def request(self, rows: Sequence[DraftRequest], now: float) -> list[DraftReply]:
        """Take rows to send; returns the replies that need no drafter."""
        unknown: list[DraftReply] = []
        for row in rows:
            session = self._sessions.get(row.session)
            if session is None:
                unknown.append(NeedSync(row.session, 0))
            elif not self._up:
                self._lost[row.session] = None
            else:
                _ask(session, row, now)
        return unknown

    def take(self, now: float) -> Outgoing | None:
        """What is to be sent now, all sessions together; None: nothing."""
        openings: list[DraftOpening] = []
        rows: list[DraftRequest] = []
        for session in self._sessions.values():
            if session.unsent is None:
                continue
            # With its opening, a row from zero can always be applied: see `_is_stale`.
            if not session.announced or session.unsent.base_length == 0:
                openings.append(session.opening)
                session.announced = True
            rows.append(_with_time_left(session, session.unsent, now))
            session.unsent = None
        closes, self._closes = list(self._closes), {}
        return Outgoing(openings, rows, closes) if rows or closes else None

    def link_up(self) -> list[DraftReply]:
        """Start on a drafter that knows nothing; returns a NeedSync for every row that was lost."""
        self._up = True
        lost, self._lost = list(self._lost), {}
        return [NeedSync(name, 0) for name in lost]

    def link_down(self) -> None:
        """Forget all that the drafter knew; rows without an answer are lost."""
        self._up = False
        self._closes.clear()
        for name, session in self._sessions.items():
            if session.awaited_length is not None:
                self._lost[name] = None
            self._sessions[name] = _Session(session.opening)

    def num_awaited(self, now: float) -> int:
        """Rows that an answer can still be expected for."""
        return sum(
            session.awaited_length is not None and not _late(session, now) for session in self._sessions.values()
        )

    def admit(self, reply: DraftReply, now: float) -> Admission:
        """Look at what the drafter sent before the engine sees it."""
        session = self._sessions.get(reply.session)
        if session is None:
            return Admission(None, "closed")
        if isinstance(reply, DraftProposal):
            return self._admit_proposal(session, reply, now)
        if isinstance(reply, NeedSync):
            if _is_stale(reply, session):
                return Admission(None, "stale")
            session.announced = session.announced and reply.from_length > 0  # unknown there: say again what it is
        return Admission(reply, None, _settle(session, now))

    def _admit_proposal(self, session: _Session, proposal: DraftProposal, now: float) -> Admission:
        asked = session.asked.get(proposal.base_length)
        if asked is None:
            return Admission(None, "stale")
        late = _late(session, now)
        answers_newest = proposal.base_length == session.awaited_length
        waited_s = _settle(session, now) if answers_newest else None
        if fault_of(proposal, budget=asked.budget, vocabulary_size=self._vocabulary_size) is not None:
            return Admission(None, "invalid", waited_s)
        if answers_newest and late:
            return Admission(None, "late", waited_s)
        return Admission(replace(proposal, waited_s=now - asked.at), None, waited_s)


def _ask(session: _Session, row: DraftRequest, now: float) -> None:
    session.unsent = row if session.unsent is None else join(session.unsent, row)
    session.base_length = session.unsent.base_length
    session.awaited_length = row.context_length
    session.asked_at = now
    session.deadline_at = now + row.deadline_ms / 1e3 if row.deadline_ms else 0.0
    session.asked.pop(row.context_length, None)
    session.asked[row.context_length] = _Asked(row.budget, now)
    if len(session.asked) > _ASKED_MEMORY:
        del session.asked[next(iter(session.asked))]


def _with_time_left(session: _Session, row: DraftRequest, now: float) -> DraftRequest:
    if not row.deadline_ms:
        return row
    return replace(row, deadline_ms=max(1, int((session.deadline_at - now) * 1e3)))


def _is_stale(need: NeedSync, session: _Session) -> bool:
    """Whether the newest row brings what is missed: then the complaint is about a row that it replaced."""
    return session.base_length <= max(0, need.from_length)


def _late(session: _Session, now: float) -> bool:
    return session.deadline_at > 0 and now > session.deadline_at


def _settle(session: _Session, now: float) -> float | None:
    """Note that the open request is answered; returns how long that took."""
    if session.awaited_length is None:
        return None
    session.awaited_length = None
    return now - session.asked_at
