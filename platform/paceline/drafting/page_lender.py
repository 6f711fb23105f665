"""How a drafter inside a target gets at the pages of the target's sequences."""

from typing import Protocol

from paceline.kvcache.page_pool import PageTable


class PageLender(Protocol):
    """Knows the pages of each session's sequence; the engine implements it."""

    def table_of(self, session: str) -> PageTable | None:
        """The table, for use until the drafter returns; None while the sequence holds no pages.

        All tokens but the newest have been computed. What the drafter holds beyond that it gives back.
        """
