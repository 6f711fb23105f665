"""Versions of the peer protocol: every release speaks its own and the one before.

The link (target to drafter) and the stream (gateway to target) share one version number. During a
rolling update both ends agree on the newest version that both speak.
"""

PROTOCOL_MIN = 1
"""Oldest version that this release speaks."""
PROTOCOL_MAX = 1
"""Newest version that this release speaks."""


def negotiate(peer_min: int, peer_max: int) -> int | None:
    """Newest version that both ends speak, or None where there is none."""
    version = min(PROTOCOL_MAX, peer_max)
    return version if version >= max(PROTOCOL_MIN, peer_min) else None


def describe(lowest: int, highest: int) -> str:
    """A version range in words."""
    return str(lowest) if lowest == highest else f"{lowest} to {highest}"
