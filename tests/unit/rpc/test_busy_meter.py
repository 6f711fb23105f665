import pytest

from paceline.rpc.busy_meter import BusyMeter


def test_share_of_the_last_second():
    """Only work within the window counts, cut where the window begins."""
    meter = BusyMeter()
    meter.add(0.0, 0.4)
    meter.add(0.9, 1.1)
    assert meter.share(1.2) == pytest.approx(0.4)
    assert meter.share(2.0) == pytest.approx(0.1)
    assert meter.share(3.0) == 0.0


def test_share_never_exceeds_one():
    """A span longer than the window is a whole window."""
    meter = BusyMeter()
    meter.add(0.0, 5.0)
    assert meter.share(5.0) == 1.0
