"""What a gateway makes of reports and of its own requests, on a clock that the test moves."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from paceline.routing.target_load import REPORT_VALID_S, ReplicaLoad, TargetReport


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


def test_own_requests_count_until_a_report_knows_them():
    """Between reports the gateway adds what it has sent itself; the next report has it already."""
    clock = Clock()
    load = ReplicaLoad(clock)
    load.reported(TargetReport(busy=3))
    for _ in range(2):
        load.arrived(load.expect())
    assert load.score == 5

    clock.now += 1
    load.reported(TargetReport(busy=5))

    assert load.score == 5


def test_a_place_that_is_still_asked_for_counts_whatever_reports_say():
    """No report can know of a request that has not arrived."""
    clock = Clock()
    load = ReplicaLoad(clock)
    request = load.expect()
    clock.now += 1
    load.reported(TargetReport(busy=0))
    assert load.score == 1

    load.ended(request)

    assert load.score == 0


def test_requests_that_ended_since_the_report_no_longer_count():
    """What the report counts and has ended is taken off, never below nothing."""
    clock = Clock()
    load = ReplicaLoad(clock)
    requests = [load.expect() for _ in range(3)]
    for request in requests:
        load.arrived(request)
    clock.now += 1
    load.reported(TargetReport(busy=2))
    scores = []
    for request in requests:
        load.ended(request)
        scores.append(load.score)

    assert scores == [1, 0, 0]


def test_a_report_expires():
    """A silent replica's load is unknown, not what it was."""
    clock = Clock()
    load = ReplicaLoad(clock)
    assert load.score is None
    load.reported(TargetReport(busy=3))
    clock.now += REPORT_VALID_S
    assert load.score == 3

    clock.now += 0.01

    assert load.score is None


def test_a_report_that_was_held_up_on_its_way_is_as_old_as_it_is():
    """The replica's uptime in the report shows how much later than the fastest one it came."""
    clock = Clock()
    load = ReplicaLoad(clock)
    load.reported(TargetReport(busy=0, uptime_s=50.0))
    clock.now += 10
    load.reported(TargetReport(busy=7, uptime_s=58.0))  # 2 s under way
    assert load.score == 7
    clock.now += 1.1
    assert load.score is None

    load.reported(TargetReport(busy=8, uptime_s=61.1))

    assert load.score == 8


@pytest.mark.parametrize("speed", [1 - 5e-4, 1 + 5e-4])
def test_clocks_of_different_speed_do_not_age_reports(speed):
    """After a day of a clock that runs slow or fast, reports are as fresh as on the first minute."""
    clock = Clock()
    load = ReplicaLoad(clock)
    for second in range(0, 86_400, 20):
        clock.now = 1000.0 + second
        load.reported(TargetReport(busy=1, uptime_s=5 + second * speed))
        clock.now += REPORT_VALID_S - 0.1

        assert load.score == 1


_EVENTS = st.lists(
    st.sampled_from(["expect", "arrive", "end", "report", "late report", "wait"]) | st.floats(0.001, 4), max_size=60
)


@given(_EVENTS, st.randoms(use_true_random=False))
def test_whatever_happens_counts_are_never_negative_and_come_back(events, rng):
    """After any sequence the score is unknown or at least 0; when all own requests have ended a report is all."""
    clock = Clock()
    load = ReplicaLoad(clock)
    asked, arrived = [], []
    started = clock.now
    for event in events:
        if event == "expect":
            asked.append(load.expect())
        elif event == "arrive" and asked:
            arrived.append(asked.pop(rng.randrange(len(asked))))
            load.arrived(arrived[-1])
        elif event == "end" and asked + arrived:
            pool = arrived if arrived and (not asked or rng.random() < 0.5) else asked
            load.ended(pool.pop(rng.randrange(len(pool))))
        elif event == "report":
            load.reported(TargetReport(rng.randrange(5), uptime_s=clock.now - started))
        elif event == "late report":
            load.reported(TargetReport(rng.randrange(5), uptime_s=max(0.0, clock.now - started - 1)))
        elif isinstance(event, float):
            clock.now += event
        assert load.score is None or load.score >= 0

    for request in asked + arrived:
        load.ended(request)
    clock.now += 1
    load.reported(TargetReport(busy=4, uptime_s=clock.now - started))

    assert load.score == 4
