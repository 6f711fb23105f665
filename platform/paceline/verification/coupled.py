"""Accept a draft iff it is the token that the target draws itself.

The target's token at a position is argmax(log p + G) with noise G of that position alone (Daliri, Musco,
Suresh 2024). The text therefore depends on weights, prompt and seed only, whatever was drafted, and q
plays no part. A drafter that draws with the same noise agrees with probability at least
(1 - TV) / (1 + TV); with several drafts at a level, the walk goes on below the one that was drawn.
"""

from collections.abc import Generator
from typing import Any

from paceline.verification.draws import Draws
from paceline.verification.noise import Purpose
from paceline.verification.rows import Verdict
from paceline.verification.walk import Ask, Walk


def verify(walk: Walk, draws: Draws) -> Generator[Ask, Any, Verdict]:  # noqa: ARG001 - a `Rule`
    """Go down as long as the target's own draw is a child."""
    while True:
        law = yield from walk.law()
        token_id = yield from walk.draw(law, walk.key(Purpose.TARGET))
        child = walk.child_of(token_id)
        if child is None:
            return walk.verdict(token_id)
        walk.descend(child)
