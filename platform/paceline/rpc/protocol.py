"""Versions of the peer protocol: every release speaks its own and the one before.

The link (target to drafter) and the stream (gateway to target) share one version number. During a
rolling update both ends agree on the newest version that both speak.

Version 2 added to the stream: a deadline, signs of life, and in load reports the replica's uptime, whether it
drains and since when it is stalled. It added to the link: features of tokens. Over version 1 a target has none to
send, so a drafter that needs them refuses it.
"""

from typing import NamedTuple

from paceline.errors import ConfigError

PROTOCOL_MIN = 1
"""Oldest version that this release speaks."""
PROTOCOL_MAX = 2
"""Newest version that this release speaks."""
SIGNS_OF_LIFE = 2
"""First version whose targets write at least once a second while an attempt is alive."""
FEATURES = 2
"""First version whose targets can send features of tokens."""


class Versions(NamedTuple):
    """A range of versions that one end speaks."""

    lowest: int
    highest: int

    def shared_with(self, other: "Versions") -> int | None:
        """Newest version that both ends speak, or None where there is none."""
        version = min(self.highest, other.highest)
        return version if version >= max(self.lowest, other.lowest) else None

    def __str__(self) -> str:
        return str(self.lowest) if self.lowest == self.highest else f"{self.lowest} to {self.highest}"


OURS = Versions(PROTOCOL_MIN, PROTOCOL_MAX)
"""What this release speaks where the configuration pins nothing."""


def spoken(newest: int | None) -> Versions:
    """What to speak where ``newest``, the setting `peer.protocol_max`, pins the newest version; None: all.

    Raises ConfigError for a version that is too old for this release.
    """
    if newest is None:
        return OURS
    if newest < PROTOCOL_MIN:
        raise ConfigError(
            f"peer.protocol_max is {newest}, but this release speaks protocol {OURS}. "
            f"Set it to a version from {PROTOCOL_MIN} to {PROTOCOL_MAX}, or leave it out."
        )
    return OURS._replace(highest=min(newest, PROTOCOL_MAX))
