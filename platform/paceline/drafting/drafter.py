"""The one signature of all drafters, in this process or behind a link."""

from collections.abc import Sequence
from typing import Protocol

from paceline.core.drafts import DraftOpening, DraftReply, DraftRequest


class Drafter(Protocol):
    """Proposes candidate tokens. Soft state only: it may lose everything at any instant.

    Calls come from one thread. A session's newest request replaces an older one that is still pending.
    Nothing here raises for a drafter's own fault: a drafter that cannot draft says so in its replies,
    or gives none.
    """

    @property
    def method(self) -> str:
        """Drafting method, such as "ngram"."""

    @property
    def live(self) -> bool:
        """Whether requests sent now can be expected to be answered."""

    @property
    def detail(self) -> str:
        """Why the drafter is not live; empty while it is."""

    def open(self, openings: Sequence[DraftOpening]) -> None:
        """Make sessions known. Opening a session again starts it afresh."""

    def request(self, rows: Sequence[DraftRequest]) -> None:
        """Bring sessions up to date and ask for proposals; returns without waiting for them."""

    def collect(self, timeout_s: float) -> list[DraftReply]:
        """Replies that are ready, in any order; waits up to ``timeout_s`` for the first one.

        A drafter in this process does one unit of its work here (a prefill chunk, or one proposal for
        every session that is up to date), so rows may need several calls.
        """

    @property
    def num_pending(self) -> int:
        """Requests that have no reply yet."""

    def close(self, sessions: Sequence[str]) -> None:
        """Drop sessions and whatever they hold. Unknown ones are ignored."""
