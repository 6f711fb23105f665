"""Which link each of a drafter's sessions belongs to, and since when it has been silent.

Two targets may choose the same session name, so the drafter knows sessions by a name with the link's
number in front.
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Protocol, TypeVar

from paceline.core.drafts import DraftOpening, DraftReply, DraftRequest

Named = TypeVar("Named", DraftOpening, DraftRequest)


class LinkPort(Protocol):
    """Where the answers of one link go."""

    link_id: int

    def deliver(self, replies: list[DraftReply]) -> None:
        """Take answers; called from the drafter's thread, never blocks."""


@dataclass(slots=True)
class Lease:
    """A session of one link."""

    name: str  # as the drafter knows it
    session: str  # as the target knows it
    port: LinkPort
    last_use: float  # clock time, in seconds


class SessionLeases:
    """All sessions of one drafter. Used from the drafter's thread; only ``len`` from others."""

    def __init__(self, ttl_s: float) -> None:
        self._ttl_s = ttl_s
        self._leases: dict[str, Lease] = {}

    def __len__(self) -> int:
        return len(self._leases)

    def open(self, port: LinkPort, opening: DraftOpening, now: float) -> DraftOpening:
        """Start a lease; return the opening under the drafter's own name for it."""
        named = _under_link(port, opening)
        if opening.fork_of:
            named = replace(named, fork_of=_name(port, opening.fork_of))
        self._leases[named.session] = Lease(named.session, opening.session, port, now)
        return named

    def renew(self, port: LinkPort, row: DraftRequest, now: float) -> DraftRequest | None:
        """Renew a row's lease; return the row under the drafter's own name, None if there is no lease."""
        named = _under_link(port, row)
        lease = self._leases.get(named.session)
        if lease is None:
            return None
        lease.last_use = now
        return named

    def get(self, name: str) -> Lease | None:
        """The lease that the drafter knows as ``name``."""
        return self._leases.get(name)

    def names_of(self, port: LinkPort, sessions: Iterable[str]) -> list[str]:
        """The drafter's own names of a link's sessions; unknown ones are left out."""
        return [name for session in sessions if (name := _name(port, session)) in self._leases]

    def names_of_link(self, link_id: int) -> list[str]:
        """The drafter's own names of all sessions of a link."""
        return [lease.name for lease in self._leases.values() if lease.port.link_id == link_id]

    def silent_names(self, now: float) -> list[str]:
        """The drafter's own names of sessions whose lease has run out."""
        return [lease.name for lease in self._leases.values() if now - lease.last_use > self._ttl_s]

    def drop(self, names: Iterable[str]) -> None:
        """End leases; unknown ones are ignored."""
        for name in names:
            self._leases.pop(name, None)


def _name(port: LinkPort, session: str) -> str:
    return f"{port.link_id}/{session}"


def _under_link(port: LinkPort, record: Named) -> Named:
    return replace(record, session=_name(port, record.session))
