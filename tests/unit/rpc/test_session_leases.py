from dataclasses import dataclass, field, replace

from draft_dialogue import opening, row
from paceline.core.drafts import DraftReply
from paceline.core.hashed_tokens import HashedTokens
from paceline.rpc.session_leases import SessionLeases


@dataclass
class Port:
    link_id: int
    replies: list[DraftReply] = field(default_factory=list)

    def deliver(self, replies: list[DraftReply]) -> None:
        self.replies += replies


ROW = row(HashedTokens([1]), 0, depth=1)


def test_two_links_may_use_one_session_name():
    """Equal names of two targets are two sessions, and each closes only its own."""
    leases = SessionLeases(ttl_s=10)
    first, second = Port(1), Port(2)
    names = [leases.open(port, opening("s"), now=0).session for port in (first, second)]
    assert len(set(names)) == len(leases) == 2

    leases.drop(leases.names_of(first, ["s"]))

    assert leases.renew(first, ROW, now=1) is None
    assert leases.renew(second, ROW, now=1).session == names[1]


def test_a_fork_names_a_session_of_its_own_link():
    """The drafter knows the other session by the name that the same link gave it."""
    leases = SessionLeases(ttl_s=10)
    leases.open(Port(1), opening("s"), now=0)
    mine = leases.open(Port(2), opening("s"), now=0).session
    fork = leases.open(Port(2), replace(opening("t"), fork_of="s"), now=0)
    assert fork.fork_of == mine
    assert leases.open(Port(2), opening("u"), now=0).fork_of == ""


def test_end_of_a_link_ends_its_sessions():
    """All sessions of a link are found, and none of another's."""
    leases = SessionLeases(ttl_s=10)
    mine = {leases.open(Port(1), opening(name), now=0).session for name in "ab"}
    leases.open(Port(11), opening("a"), now=0)
    assert set(leases.names_of_link(1)) == mine


def test_traffic_renews_a_lease_and_silence_ends_it():
    """Only sessions without a row for longer than the time to live are given up."""
    leases = SessionLeases(ttl_s=10)
    port = Port(1)
    talking = leases.open(port, opening("s"), now=0).session
    silent = leases.open(port, opening("t"), now=0).session
    leases.renew(port, ROW, now=8)
    assert leases.silent_names(now=10) == []
    assert leases.silent_names(now=11) == [silent]
    assert set(leases.silent_names(now=19)) == {talking, silent}


def test_lease_remembers_the_targets_name():
    """An answer goes back under the name that the target chose."""
    leases = SessionLeases(ttl_s=10)
    name = leases.open(Port(3), opening("a/b"), now=0).session
    assert leases.get(name).session == "a/b"
