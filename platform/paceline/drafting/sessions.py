"""What a drafter remembers of each sequence, and how a request brings it up to date.

Every method keeps its sessions here, in this process or behind a link, so opening, catching up after
a plain period, a lost reply and a repeated request are one path.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import Generic, TypeVar

from paceline.core.drafts import DraftOpening, DraftRequest, NeedSync
from paceline.core.hashed_tokens import HashedTokens


class DraftSession:
    """One sequence as a drafter knows it: committed tokens only, never its own drafts."""

    def __init__(self, opening: DraftOpening) -> None:
        self.opening = opening
        self.tokens = HashedTokens()
        self.last_use = 0  # counts requests over all sessions; the lowest was idle longest

    def apply(self, row: DraftRequest) -> NeedSync | int:
        """Make the context what ``row`` says; return how many leading tokens were kept as they were.

        Applying a row twice changes nothing the second time. A session that is ahead is cut back. NeedSync names
        the tokens that are known; 0 where what is known is another text.
        """
        if row.base_length > len(self.tokens):
            return NeedSync(row.session, len(self.tokens))
        if self.tokens.hash_at(row.base_length) != row.base_hash:
            return NeedSync(row.session, 0)
        kept = row.base_length + _common_prefix(self.tokens.ids, row.base_length, row.new_token_ids)
        self.tokens.truncate(kept)
        self.tokens.extend(row.new_token_ids[kept - row.base_length :])
        return kept

    @property
    def context_hash(self) -> int:
        """Hash of all tokens."""
        return self.tokens.hash_at(len(self.tokens))


SessionT = TypeVar("SessionT", bound=DraftSession)


class SessionTable(Generic[SessionT]):
    """Open sessions by name."""

    def __init__(self) -> None:
        self._sessions: dict[str, SessionT] = {}
        self._uses = 0

    def __len__(self) -> int:
        return len(self._sessions)

    def __iter__(self) -> Iterator[SessionT]:
        return iter(self._sessions.values())

    def get(self, name: str) -> SessionT | None:
        """The session, or None if it is unknown."""
        return self._sessions.get(name)

    def add(self, session: SessionT) -> None:
        """Open a session, in place of one of the same name; the caller has closed that one."""
        self._sessions[session.opening.session] = session

    def pop(self, names: Iterable[str]) -> list[SessionT]:
        """Close sessions; unknown names are ignored."""
        return [session for name in names if (session := self._sessions.pop(name, None)) is not None]

    def apply(self, row: DraftRequest) -> NeedSync | int:
        """`DraftSession.apply` for the session that ``row`` names; NeedSync(0) if it is unknown."""
        session = self._sessions.get(row.session)
        if session is None:
            return NeedSync(row.session, 0)
        self._uses += 1
        session.last_use = self._uses
        return session.apply(row)


def _common_prefix(known: Sequence[int], start: int, token_ids: Sequence[int]) -> int:
    """Number of leading ``token_ids`` that equal ``known[start:]``."""
    room = min(len(token_ids), len(known) - start)
    return next((i for i in range(room) if known[start + i] != token_ids[i]), room)
