"""When a drafter group can be expected to answer."""

import pytest

from paceline.engine.reply_times import ReplyTimes


def noted(size, *seconds):
    times = ReplyTimes()
    for value in seconds:
        times.note(size, value)
    return times


def test_mean_and_two_deviations():
    """The later time is that of all but few replies."""
    reply = noted(4, 0.010, 0.014).expected(4)

    assert reply.mean_s == pytest.approx(0.012)
    assert reply.latest_s == pytest.approx(0.016)


def test_one_hiccup_is_no_habit():
    """Of many replies the slowest does not count."""
    assert noted(4, *[0.01] * 20, 3.0).expected(4).latest_s == pytest.approx(0.01)


def test_larger_messages_have_times_of_their_own():
    """Sizes are kept apart by powers of two; one that was never seen is taken for the nearest, the larger of two."""
    times = noted(4, 0.01)
    times.note(64, 0.05)

    assert times.expected(5).mean_s == 0.01
    assert times.expected(100).mean_s == 0.05
    assert times.expected(16).mean_s == 0.05


def test_a_slower_link_is_noticed():
    """Only the newest replies count."""
    assert noted(4, *[0.01] * 50, *[0.09] * 32).expected(4).mean_s == pytest.approx(0.09)


def test_nothing_is_known_before_the_first_reply():
    """Then there is nothing to expect."""
    assert ReplyTimes().expected(4) is None
