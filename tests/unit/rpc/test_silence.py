"""Silence, on a loop whose time the test moves."""

import pytest

from paceline.rpc import silence
from paceline.rpc.silence import SilenceWatch


class Timer:
    def __init__(self, at: float, callback) -> None:
        self.at, self.callback = at, callback

    def when(self) -> float:
        return self.at

    def cancel(self) -> None:
        self.callback = lambda: None


class Loop:
    def __init__(self) -> None:
        self.now, self.timers = 100.0, []

    def time(self) -> float:
        return self.now

    def call_later(self, delay_s: float, callback) -> Timer:
        self.timers.append(Timer(self.now + delay_s, callback))
        return self.timers[-1]

    def run(self, seconds: float, *, stands_still: bool = False) -> None:
        """Let time pass; a loop that stands still looks at its timers only at the end."""
        until = self.now + seconds
        while due := [timer for timer in self.timers if timer.at <= until]:
            timer = min(due, key=Timer.when)
            self.timers.remove(timer)
            self.now = until if stands_still else timer.at
            timer.callback()
        self.now = until


@pytest.fixture
def fake_loop(monkeypatch):
    loop = Loop()
    monkeypatch.setattr(silence.asyncio, "get_running_loop", lambda: loop)
    return loop


def test_a_message_in_time_keeps_a_stream(fake_loop):
    """Only a gap as long as the limit is silence, and it is told once."""
    told = []
    watch = SilenceWatch(10, lambda: told.append(fake_loop.now))
    for _ in range(5):
        fake_loop.run(9.9)
        watch.heard()
    assert told == []

    fake_loop.run(100)

    assert told == [pytest.approx(100 + 5 * 9.9 + 10)]


def test_a_reader_that_is_busy_hears_nothing_and_blames_nobody(fake_loop):
    """Time in which the reader does not wait for messages does not count."""
    told = []
    watch = SilenceWatch(10, lambda: told.append(fake_loop.now))
    with watch.away():
        fake_loop.run(35)
    assert told == []
    fake_loop.run(9)
    assert told == []

    fake_loop.run(2)

    assert told == [pytest.approx(145)]


def test_a_process_that_stood_still_gives_the_other_end_its_time(fake_loop):
    """After a pause of our own, messages that came meanwhile are read before anybody is given up."""
    told = []
    SilenceWatch(10, lambda: told.append(fake_loop.now))
    fake_loop.run(30, stands_still=True)
    assert told == []

    fake_loop.run(10)

    assert told == [pytest.approx(140)]


def test_a_watch_that_is_stopped_says_nothing(fake_loop):
    """The stream has ended."""
    told = []
    SilenceWatch(10, lambda: told.append(fake_loop.now)).stop()
    fake_loop.run(60)

    assert told == []
