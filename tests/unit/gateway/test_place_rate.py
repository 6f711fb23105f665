import pytest

from paceline.gateway.place_rate import PlaceRate


def _steady(rate: PlaceRate, *, start: float, every_s: float, number: int) -> float:
    """Places at even distances; returns the time of the last."""
    for count in range(1, number + 1):
        rate.place_came(start + count * every_s)
    return start + number * every_s


def test_the_wait_is_that_of_all_before_and_oneself():
    """At two places a second the tenth in line waits five seconds."""
    rate = PlaceRate()
    rate.waiting_began(100.0)
    now = _steady(rate, start=100.0, every_s=0.5, number=50)

    assert rate.wait_s(9, now) == pytest.approx(5.0, rel=0.05)


@pytest.mark.parametrize("number", [0, 1, 2])
def test_too_few_places_say_nothing(number):
    """Long answers may come to an end seldom: that alone is no reason to refuse."""
    rate = PlaceRate()
    rate.waiting_began(0.0)
    now = _steady(rate, start=0.0, every_s=20.0, number=number)

    assert rate.wait_s(100, now) is None


def test_a_queue_that_was_empty_starts_anew():
    """How fast places came in the last rush is not known to hold in this one."""
    rate = PlaceRate()
    rate.waiting_began(0.0)
    now = _steady(rate, start=0.0, every_s=5.0, number=10)
    assert rate.wait_s(0, now) is not None

    rate.waiting_ended()
    assert rate.wait_s(0, now) is None
    rate.waiting_began(now + 1)
    assert rate.wait_s(0, now + 2) is None


def test_a_fleet_that_slows_down_is_noticed():
    """A minute after places have become ten times as rare the estimate is nearer to the new pace than to the old."""
    rate = PlaceRate()
    rate.waiting_began(0.0)
    now = _steady(rate, start=0.0, every_s=0.2, number=300)
    now = _steady(rate, start=now, every_s=2.0, number=30)

    assert 0.7 < rate.wait_s(0, now) < 2.0


def test_a_fleet_that_stops_is_a_longer_and_longer_wait():
    """Hours without a place neither raise nor come to an end of numbers."""
    rate = PlaceRate()
    rate.waiting_began(0.0)
    now = _steady(rate, start=0.0, every_s=1.0, number=60)

    waits = [rate.wait_s(0, now + later) for later in (0, 60, 600, 1e6)]

    assert waits == sorted(waits)
    assert waits[-1] > 1e6
