"""The only source of chance in verification.

Rules take their decisions through `Draws`, never from a generator of their own. In production the
decisions are counter-based noise; a test passes a `Draws` that visits every branch with its exact
probability, and so computes the law of the very functions that serve.
"""

from collections.abc import Sequence
from typing import NamedTuple, Protocol

from paceline.verification.law import TokenLaw, draw_ids
from paceline.verification.noise import NoiseKey, row_key, uniform


class DrawAsk(NamedTuple):
    """One id is wanted, drawn from ``law`` with the noise of ``key``."""

    law: TokenLaw
    key: NoiseKey


class Draws(Protocol):
    """Chance for any sequence in any round; the key says which."""

    def accept(self, weight: float, against: float, key: NoiseKey, *, sibling: int = 0) -> bool:
        """True with probability min(1, weight / against), never where ``weight`` is 0.

        ``against`` is positive. Tests of different siblings, counted in the order of testing, are independent.
        """

    def sample(self, asks: Sequence[DrawAsk]) -> list[int]:
        """One id for each of ``asks``."""


class CounterDraws:
    """Draws that are functions of their keys alone."""

    def accept(self, weight: float, against: float, key: NoiseKey, *, sibling: int = 0) -> bool:
        """Test u · against < weight: no division, and strict, so that weight 0 is never accepted."""
        return uniform(key, sibling) * against < weight

    def sample(self, asks: Sequence[DrawAsk]) -> list[int]:
        """Gumbel-max with the noise of each key, all rows in one call."""
        return draw_ids([ask.law for ask in asks], [row_key(ask.key) for ask in asks])
