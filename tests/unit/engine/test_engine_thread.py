"""A target that makes no progress says so, and says why."""

import contextlib
import threading
import time

import pytest

from engine_harness import Harness, make_request
from paceline.config.schema import EngineConfig
from paceline.engine.engine_thread import EngineThread
from paceline.errors import EngineFailedError
from simulated_link import FakeClock
from toy_target import ToyRunner, hashed_law

LAW = hashed_law(11)


class HangingRunner(ToyRunner):
    """Its passes end when they are told to."""

    def __init__(self, *args, **options):
        super().__init__(*args, **options)
        self.may_end = threading.Event()
        self.may_end.set()
        self.entered = threading.Event()

    def forward(self, rows):
        self.entered.set()
        assert self.may_end.wait(20)
        return super().forward(rows)


@contextlib.contextmanager
def running(runner, **limits):
    """An engine on its thread, with a clock that only the test moves."""
    harness, clock = Harness(runner), FakeClock()
    thread = EngineThread(
        harness.engine,
        on_error=lambda *_: None,
        on_end=lambda _: None,
        clock=clock,
        **{"step_timeout_s": 10.0, "first_step_timeout_s": 100.0, **limits},
    )
    thread.start()
    try:
        yield harness, thread, clock
    finally:
        runner.may_end.set()
        thread.close()


def until(condition):
    give_up_at = time.monotonic() + 10
    while not condition():
        assert time.monotonic() < give_up_at
        time.sleep(0.002)


def test_a_step_that_does_not_end_makes_the_replica_unhealthy():
    """Within the configured time, with the reason; and it is well again when the step ends after all."""
    runner = HangingRunner(LAW, 11)
    with running(runner) as (harness, thread, clock):
        thread.submit(make_request("first/1", (1, 2, 3), max_tokens=2))
        until(lambda: "first/1" in harness.chunks and not harness.engine.has_work)
        runner.may_end.clear()
        runner.entered.clear()
        thread.submit(make_request("second/1", (1, 2, 3), max_tokens=2))
        assert runner.entered.wait(10)
        clock.now += 9.0
        thread.check_health()
        clock.now += 2.0
        with pytest.raises(EngineFailedError, match="a step has not ended for 11 s"):
            thread.check_health()
        runner.may_end.set()
        until(lambda: not harness.engine.has_work)
        until(lambda: _healthy(thread))


def test_the_first_step_has_a_time_of_its_own():
    """What it compiles and pages in does not count as a hang until much later."""
    runner = HangingRunner(LAW, 11)
    runner.may_end.clear()
    with running(runner) as (_, thread, clock):
        thread.submit(make_request("r/1", (1, 2, 3), max_tokens=2))
        assert runner.entered.wait(10)
        clock.now += 99.0
        thread.check_health()
        clock.now += 2.0
        with pytest.raises(EngineFailedError, match="a step has not ended"):
            thread.check_health()


def test_steps_that_compute_nothing_are_no_progress(monkeypatch):
    """Work waits while the loop turns: a scheduler that admits nobody is seen."""
    runner = HangingRunner(LAW, 11)
    with running(runner) as (harness, thread, clock):
        monkeypatch.setattr(harness.scheduler, "admit", list)
        thread.submit(make_request("r/1", (1, 2, 3), max_tokens=2))
        until(lambda: harness.engine.has_work and runner.num_forwards > 3)
        clock.now += 101.0
        turns = runner.num_forwards
        until(lambda: runner.num_forwards > turns + 1)
        with pytest.raises(EngineFailedError, match="no step has computed anything for 101 s"):
            thread.check_health()
        monkeypatch.undo()
        until(lambda: not harness.engine.has_work)


def test_a_message_that_hangs_is_seen():
    """Whatever the thread is in the middle of counts, and what waits behind it."""
    runner = HangingRunner(LAW, 11)
    entered, may_end = threading.Event(), threading.Event()
    with running(runner) as (_, thread, clock):
        thread.call(lambda: entered.set() or may_end.wait(20))
        assert entered.wait(10)
        clock.now += 101.0
        with pytest.raises(EngineFailedError, match="a message to the engine has not ended"):
            thread.check_health()
        may_end.set()


def test_an_idle_engine_is_healthy_for_ever():
    """Without work there is nothing to be late with; work that comes after an hour has its full time."""
    runner = HangingRunner(LAW, 11)
    with running(runner) as (harness, thread, clock):
        thread.submit(make_request("first/1", (1, 2, 3), max_tokens=2))
        until(lambda: "first/1" in harness.chunks and not harness.engine.has_work and not thread._busy)
        clock.now += 3600.0
        thread.check_health()
        assert thread.stalled_s == 0.0

        until(lambda: thread._last_progress == clock.now)  # an idle thread looks at the clock by itself
        runner.may_end.clear()
        runner.entered.clear()
        thread.submit(make_request("second/1", (1, 2, 3), max_tokens=2))
        assert runner.entered.wait(10)
        clock.now += 9.0
        thread.check_health()


def test_a_pass_of_20_s_is_no_fault_by_default():
    """As long as a large prompt may take on few cores: the replica is well, and says since when it computes."""
    limits = EngineConfig()
    runner = HangingRunner(LAW, 11)
    with running(runner, step_timeout_s=limits.step_timeout_s, first_step_timeout_s=limits.first_step_timeout_s) as (
        harness,
        thread,
        clock,
    ):
        thread.submit(make_request("first/1", (1, 2, 3), max_tokens=2))
        until(lambda: "first/1" in harness.chunks and not harness.engine.has_work)
        runner.may_end.clear()
        runner.entered.clear()
        thread.submit(make_request("long/1", (1, 2, 3), max_tokens=2))
        assert runner.entered.wait(10)
        clock.now += 20.0
        thread.check_health()
        assert thread.stalled_s == 20.0
        runner.may_end.set()
        until(lambda: not harness.engine.has_work and thread.stalled_s == 0.0)
        thread.check_health()


def _healthy(thread):
    try:
        thread.check_health()
    except EngineFailedError:
        return False
    return True
