import pytest

from paceline.rpc import protocol


@pytest.mark.parametrize(
    ("peer_min", "peer_max", "version"),
    [(1, 1, 1), (0, 1, 1), (1, 9, 1), (0, 0, None), (2, 3, None)],
)
def test_newest_shared_version_is_chosen(peer_min, peer_max, version):
    """Both ends speak the newest version that both know; ranges without one in common have none."""
    assert protocol.negotiate(peer_min, peer_max) == version


def test_release_speaks_its_own_version_and_the_one_before():
    """The range is never wider than two versions, and never empty."""
    assert 0 <= protocol.PROTOCOL_MAX - protocol.PROTOCOL_MIN <= 1


def test_range_in_words():
    """A range of one version reads as that version."""
    assert protocol.describe(1, 1) == "1"
    assert protocol.describe(1, 2) == "1 to 2"
