"""Who goes first where requests wait."""

from enum import IntEnum


class Priority(IntEnum):
    """Smaller goes first."""

    HIGH = 0
    NORMAL = 1
    LOW = 2
