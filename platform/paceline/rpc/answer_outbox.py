"""Answers on their way to one target: bounded, and never waited for by whoever fills it."""

import asyncio

from paceline.core.drafts import DraftReply


class AnswerOutbox:
    """Newest answer per session, in order of arrival. Used on the link's asyncio loop only."""

    def __init__(self, max_rows: int) -> None:
        self._max_rows = max_rows
        self._rows: dict[str, DraftReply] = {}
        self._filled = asyncio.Event()

    def put(self, reply: DraftReply) -> str | None:
        """Add an answer. Returns why an older one was dropped for it: "replaced", "full" or None."""
        dropped = None
        if self._rows.pop(reply.session, None) is not None:
            dropped = "replaced"
        elif len(self._rows) >= self._max_rows:
            del self._rows[next(iter(self._rows))]  # whole rows: the target asks again
            dropped = "full"
        self._rows[reply.session] = reply
        self._filled.set()
        return dropped

    def wake(self) -> None:
        """End a `wait` that is under way."""
        self._filled.set()

    async def wait(self, timeout_s: float) -> None:
        """Wait for an answer or `wake`, at most ``timeout_s``."""
        try:
            await asyncio.wait_for(self._filled.wait(), timeout_s)
        except TimeoutError:
            return

    def take(self) -> list[DraftReply]:
        """Remove and return all answers."""
        rows, self._rows = list(self._rows.values()), {}
        self._filled.clear()
        return rows
