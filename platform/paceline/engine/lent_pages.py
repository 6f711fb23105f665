"""Pages of the engine's sequences, for drafters that keep their own K/V beside the target's."""

from paceline.engine.scheduler import Scheduler
from paceline.engine.sequence import Sequence
from paceline.engine.session_ledger import session_name
from paceline.kvcache.page_pool import PageTable


class LentPages:
    """Finds a session's sequence among those that run. Implements `drafting.page_lender.PageLender`."""

    def __init__(self, scheduler: Scheduler) -> None:
        self._scheduler = scheduler
        self._by_session: dict[str, Sequence] = {}  # of some earlier moment

    def table_of(self, session: str) -> PageTable | None:
        """The table of a sequence of which only the newest token is not computed; None in any other state.

        A sequence that was pre-empted gets new pages, and is computed again before it is lent.
        """
        sequence = self._by_session.get(session)
        if sequence is None or sequence.table is None:
            running = self._scheduler.running
            self._by_session = {session_name(other.key, other.choice): other for other in running}
            sequence = self._by_session.get(session)
        if sequence is None or not sequence.decoding:
            return None
        return sequence.table
