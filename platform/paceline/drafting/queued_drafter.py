"""Requests of a drafter from their arrival to their reply; the work between both is each method's own."""

from collections.abc import Sequence
from typing import Generic

from paceline.core.drafts import DraftProposal, DraftRefusal, DraftReply, DraftRequest, DraftTree, NeedSync
from paceline.drafting.sessions import SessionT, SessionTable


class QueuedDrafter(Generic[SessionT]):
    """Sessions, requests that wait for work, and replies that need none."""

    live = True
    detail = ""

    def __init__(self) -> None:
        self._sessions: SessionTable[SessionT] = SessionTable()
        self._pending: dict[str, DraftRequest] = {}  # in order of arrival
        self._ready: dict[str, DraftReply] = {}  # answered without any work

    def request(self, rows: Sequence[DraftRequest]) -> None:
        """Bring sessions up to date; what they miss is computed in `collect`."""
        for row in rows:
            replaced = self._ready.get(row.session)
            self._forget_request(row.session)
            outcome = self._sessions.apply(row)
            if isinstance(outcome, NeedSync):
                # Behind a part that was refused: to send everything once more would not help.
                self._ready[row.session] = replaced if isinstance(replaced, DraftRefusal) else outcome
            else:
                self._pending[row.session] = row
                self._applied(self._session(row.session), row, outcome)

    def _applied(self, session: SessionT, row: DraftRequest, kept: int) -> None:
        """The context of ``session`` is what ``row`` says; its first ``kept`` tokens are as they were."""

    @property
    def num_pending(self) -> int:
        """Requests that have no reply yet."""
        return len(self._pending) + len(self._ready)

    def close(self, sessions: Sequence[str]) -> None:
        """Drop sessions and their pages; unknown ones are ignored."""
        for name in sessions:
            self._forget_request(name)
        for session in self._sessions.pop(sessions):
            self._dropped(session)

    def _dropped(self, session: SessionT) -> None:
        """Give back what ``session`` holds."""

    def _forget_request(self, name: str) -> None:
        self._pending.pop(name, None)
        self._ready.pop(name, None)

    def _answer_empty(self, session: SessionT) -> DraftProposal:
        """Answer a request without any drafts."""
        name = session.opening.session
        del self._pending[name]
        return DraftProposal(name, len(session.tokens), session.context_hash, DraftTree((), ()))

    def _session(self, name: str) -> SessionT:
        """A session with a pending request; closing one drops its request, so it is known."""
        session = self._sessions.get(name)
        if session is None:
            raise KeyError(name)
        return session
