import pytest

from paceline.errors import ConfigError
from paceline.rpc import protocol
from paceline.rpc.protocol import OURS, Versions


@pytest.mark.parametrize(
    ("peer", "version"),
    [((1, 1), 1), ((1, 2), 2), ((0, 1), 1), ((2, 9), 2), ((0, 0), None), ((3, 4), None)],
)
def test_newest_shared_version_is_chosen(peer, version):
    """Both ends speak the newest version that both know; ranges without one in common have none."""
    assert Versions(1, 2).shared_with(Versions(*peer)) == version
    assert Versions(*peer).shared_with(Versions(1, 2)) == version


def test_release_speaks_its_own_version_and_the_one_before():
    """The range is two versions wide as soon as there are two."""
    assert OURS.highest - OURS.lowest == min(1, OURS.highest - 1)


def test_range_in_words():
    """A range of one version reads as that version."""
    assert str(Versions(1, 1)) == "1"
    assert str(Versions(1, 2)) == "1 to 2"


def test_the_newest_version_can_be_pinned():
    """While an older release runs beside, its version is the newest to be spoken; a later pin changes nothing."""
    assert protocol.spoken(None) == OURS
    assert protocol.spoken(OURS.lowest) == (OURS.lowest, OURS.lowest)
    assert protocol.spoken(OURS.highest + 1) == OURS


def test_a_pin_that_is_too_old_is_a_config_error():
    """The message names the setting and what this release speaks."""
    with pytest.raises(ConfigError, match=f"peer.protocol_max is {OURS.lowest - 1}.*speaks protocol {OURS}"):
        protocol.spoken(OURS.lowest - 1)
