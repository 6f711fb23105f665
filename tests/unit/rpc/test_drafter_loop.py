import threading
from collections.abc import Iterator
from dataclasses import replace

import pytest

from draft_dialogue import opening, row
from drafters import CrashingDrafter, OracleDrafter
from paceline.core.drafts import DraftProposal, DraftRefusal, DraftReply, NeedSync
from paceline.core.hashed_tokens import HashedTokens
from paceline.rpc.drafter_loop import DrafterLoop, LinkWork
from paceline.telemetry import catalogue
from paceline.telemetry.metrics import Metrics
from peers import wait_until

TEXT = (1, 2, 3, 4, 5, 6, 7, 8)
TOKENS = HashedTokens(TEXT[:4])


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


class Port:
    """A link that keeps what it is given."""

    def __init__(self, link_id: int) -> None:
        self.link_id = link_id
        self.replies: list[DraftReply] = []
        self._lock = threading.Lock()

    def deliver(self, replies: list[DraftReply]) -> None:
        with self._lock:
            self.replies += replies

    def answers(self, num: int) -> list[DraftReply]:
        wait_until(lambda: len(self.replies) >= num)
        return self.replies


class Bench:
    """A loop over one drafter, with hands on its clock."""

    def __init__(self) -> None:
        self.clock = Clock()
        self.metrics = Metrics(strict=True)
        self._loops: list[DrafterLoop] = []

    def loop(self, drafter, *, max_sessions: int = 8, max_queued_rows: int = 8) -> DrafterLoop:
        made = DrafterLoop(
            drafter,
            group="g",
            metrics=self.metrics,
            ttl_s=10,
            max_sessions=max_sessions,
            max_queued_rows=max_queued_rows,
            clock=self.clock,
        )
        self._loops.append(made)
        return made

    def stop(self) -> None:
        for loop in self._loops:
            loop.stop()
            assert not loop.alive


@pytest.fixture
def bench() -> Iterator[Bench]:
    made = Bench()
    yield made
    made.stop()


def work(
    port: Port, *sessions: str, opens: bool = True, depth: int = 3, received_at: float = 0.0, closes=()
) -> LinkWork:
    rows = tuple(row(TOKENS, 0, depth=depth, session=name) for name in sessions)
    return LinkWork(port, tuple(map(opening, sessions)) if opens else (), rows, tuple(closes), received_at)


def test_answers_go_to_the_link_that_asked(bench):
    """Two links with the same session name each get the answers to their own rows."""
    drafter = OracleDrafter([TEXT])
    loop = bench.loop(drafter)
    ports = [Port(1), Port(2)]
    for port in ports:
        loop.submit(work(port, "s"))
    for port in ports:
        (answer,) = port.answers(1)
        assert isinstance(answer, DraftProposal)
        assert answer.session == "s"
        assert answer.tree.token_ids == TEXT[4:7]
    assert loop.load().sessions == len(drafter.sessions) == 2


def test_end_of_a_link_frees_its_sessions_only(bench):
    """The drafter forgets all sessions of a link that ended, and keeps the others."""
    drafter = OracleDrafter([TEXT])
    loop = bench.loop(drafter)
    first, second = Port(1), Port(2)
    loop.submit(work(first, "a", "b"))
    loop.submit(work(second, "a"))
    second.answers(1)
    loop.end_link(1)
    wait_until(lambda: loop.load().sessions == 1)
    assert len(drafter.sessions) == 1


def test_silent_session_is_dropped_after_its_lease(bench):
    """A target that was cancelled right after the prefill's answer, and never closes, holds nothing for long."""
    drafter = OracleDrafter([TEXT])
    loop = bench.loop(drafter)
    port = Port(1)
    loop.submit(work(port, "s", depth=0))
    port.answers(1)
    bench.clock.now = 9.0
    loop.submit(work(port, "t", received_at=9.0))
    port.answers(2)
    assert loop.load().sessions == 2
    bench.clock.now = 11.0
    wait_until(lambda: loop.load().sessions == 1)
    loop.submit(work(port, "s", opens=False, received_at=11.0))
    assert port.answers(3)[-1] == NeedSync("s", 0)
    assert len(drafter.sessions) == 1


def test_late_row_is_brought_up_to_date_but_not_drafted(bench):
    """A row whose deadline passed in the queue costs no drafting, and the next row need not resend."""
    drafter = OracleDrafter([TEXT])
    loop = bench.loop(drafter)
    port = Port(1)
    late = work(port, "s", received_at=0.0)
    rows = tuple(replace(row, deadline_ms=100) for row in late.rows)
    bench.clock.now = 0.5
    loop.submit(LinkWork(port, late.openings, rows, (), received_at=0.0))
    (answer,) = port.answers(1)
    assert isinstance(answer, DraftProposal)
    assert (len(answer.tree), answer.base_length) == (0, 4)
    assert bench.metrics.value(catalogue.DRAFTER_DROPS, group="g", reason="late") == 1


def test_crash_costs_the_sessions_at_hand_and_nothing_else(bench):
    """A drafter that raises refuses what it worked on; its thread lives and serves what comes next."""
    drafter = CrashingDrafter([TEXT], num_good=0)
    loop = bench.loop(drafter)
    port = Port(1)
    loop.submit(work(port, "s"))
    (answer,) = port.answers(1)
    assert isinstance(answer, DraftRefusal)
    assert answer.reason == "DRAFTER_FAILED"
    assert answer.retry_after_ms > 0
    assert bench.metrics.value(catalogue.DRAFTER_FAILURES, group="g") == 1
    assert loop.alive
    assert loop.load().sessions == len(drafter.sessions) == 0

    drafter._num_good = 100
    loop.submit(work(port, "s"))
    assert isinstance(port.answers(2)[-1], DraftProposal)


def test_crash_in_open_is_a_refusal_too(bench):
    """A session that cannot be opened (no memory) is refused; the row with it is not also answered."""
    drafter = OracleDrafter([TEXT])

    def fail(_openings):
        raise MemoryError("no room")

    drafter.open = fail
    loop = bench.loop(drafter)
    port = Port(1)
    loop.submit(work(port, "s"))
    loop.submit(work(port, "t", opens=False))
    answers = port.answers(2)
    assert [type(answer) for answer in answers] == [DraftRefusal, NeedSync]


def test_unknown_session_needs_sync_without_asking_the_drafter(bench):
    """A row of a session that was never opened is answered at once."""
    loop = bench.loop(OracleDrafter([TEXT]))
    port = Port(1)
    loop.submit(work(port, "s", opens=False))
    assert port.answers(1) == [NeedSync("s", 0)]


def test_sessions_beyond_the_limit_are_refused(bench):
    """A drafter that is full says so instead of growing."""
    loop = bench.loop(OracleDrafter([TEXT]), max_sessions=2)
    port = Port(1)
    loop.submit(work(port, "a", "b", "c"))
    by_session = {answer.session: answer for answer in port.answers(3)}
    assert by_session["c"].reason == "OVERLOADED"
    assert isinstance(by_session["a"], DraftProposal)
    assert loop.load().sessions == 2


def test_queue_is_bounded(bench):
    """While the drafter is stuck, more than the allowed number of rows is turned away at once."""
    stuck = threading.Event()
    held = bench.loop(_Blocking(stuck), max_queued_rows=2)
    port = Port(1)
    held.submit(work(port, "a"))
    wait_until(lambda: held.load().sessions == 1)
    assert held.submit(work(port, "b", "c"))
    assert not held.submit(work(port, "d"))
    stuck.set()
    assert len(port.answers(3)) == 3


def test_refused_rows_do_not_take_opens_and_closes_with_them(bench):
    """A target says once only that a session begins or ends: a full queue costs the message its rows, not these."""
    stuck = threading.Event()
    drafter = _Blocking(stuck)
    held = bench.loop(drafter, max_queued_rows=2)
    port = Port(1)
    held.submit(work(port, "a"))
    wait_until(lambda: held.load().sessions == 1)
    assert held.submit(work(port, "b", "c"))
    assert not held.submit(work(port, "d", closes=["a", "b"]))
    stuck.set()
    wait_until(lambda: held.load().sessions == 2)
    held.submit(work(port, "d", opens=False))

    wait_until(lambda: any(answer.session == "d" for answer in port.replies))
    assert isinstance(port.replies[-1], DraftProposal)
    assert len(drafter.sessions) == held.load().sessions == 2


def test_close_after_its_row_leaves_nothing(bench):
    """A message that asks and closes in one go frees the session, answered or not."""
    drafter = OracleDrafter([TEXT])
    loop = bench.loop(drafter)
    port = Port(1)
    loop.submit(work(port, "s", closes=["s", "never opened"]))
    loop.submit(work(port, "t"))
    port.answers(1)
    assert loop.load().sessions == len(drafter.sessions) == 1
    assert loop.load().pending == 0


class _Blocking(OracleDrafter):
    def __init__(self, released: threading.Event) -> None:
        super().__init__([TEXT])
        self._released = released

    def collect(self, timeout_s: float) -> list[DraftReply]:
        self._released.wait(5)
        return super().collect(timeout_s)
