"""When a group is asked for drafts, and when it is only probed."""

from paceline.engine.group_pace import GroupPace


def after(*steps):
    pace = GroupPace()
    for step in steps:
        for event in step:
            getattr(pace, event)()
        pace.settle()
    return pace


def test_two_misses_in_a_row_suspend():
    """One does not, nor do two with a hit between; a quiet step between them changes nothing."""
    miss, hit, quiet = ("miss",), ("hit",), ()

    assert not after(miss).suspended
    assert not after(miss, hit, miss).suspended
    assert after(miss, miss).suspended
    assert after(miss, quiet, miss).suspended


def test_many_late_rows_of_one_step_are_one_miss():
    """A step is a miss once, and none at all if another row's reply came in time."""
    assert not after(("miss", "miss", "miss")).suspended
    assert not after(("miss", "hit"), ("miss", "hit"), ("miss",)).suspended


def test_a_probe_in_time_ends_the_suspension():
    """The next step may ask again."""
    assert not after(("miss",), ("miss",), ("hit",)).suspended


def test_probes_grow_rare():
    """The first comes after one round; a group that stays silent is probed in about 3 % of rounds."""
    pace = after(("miss",), ("miss",))
    probes = [pace.may_probe() for _ in range(1000)]

    assert probes[0]
    assert 0.02 < sum(probes) / len(probes) < 0.05


def test_another_process_is_not_held_to_what_the_one_before_missed():
    """It is asked at once; the same process is not, nor is one whose name is not known yet told apart."""
    pace = after(("miss",), ("miss",))
    pace.follow("")
    assert pace.suspended
    pace.follow("one")
    assert not pace.suspended
    for _ in range(2):
        pace.miss()
        pace.settle()
    assert pace.suspended
    while not pace.may_probe():
        pass
    pace.follow("one")
    assert pace.suspended

    pace.follow("two")
    assert not pace.suspended
    pace.miss()
    pace.settle()
    assert not pace.suspended
