"""Moves the answers that run on a replica which is about to go."""

import asyncio
import random
from collections.abc import Callable
from typing import Protocol

_SPREAD_S = 1.0  # answers that move all at once would queue up at the other replicas for their prefills
_SHORTEST_STEP_S = 0.01


class Departing(Protocol):
    """What is used of the replica."""

    @property
    def num_staying(self) -> int:
        """Streams there that have not been told to move."""

    def move_one(self) -> None:
        """Tell one of them to move."""


async def move_streams(target: Departing, *, has_other: Callable[[], bool]) -> None:
    """Move one stream after another; return when none is left.

    While there is no other replica for them (``has_other``) they go on where they are.
    """
    # Another moment for every gateway, and another distance for every move.
    await asyncio.sleep(random.uniform(0, _SPREAD_S / 2))
    step_s = max(_SHORTEST_STEP_S, _SPREAD_S / max(1, target.num_staying))
    while target.num_staying:
        if has_other():
            target.move_one()
        await asyncio.sleep(step_s * random.uniform(0.5, 1.5))
