"""The only source of chance in verification.

Rules take their decisions through `Draws`, never from a generator of their own. In production the
decisions are counter-based noise; a test passes a `Draws` that visits every branch with its exact
probability, and so computes the law of the very functions that serve.
"""

from typing import Protocol

from paceline.verification.law import TokenLaw
from paceline.verification.noise import NoiseKey, Purpose, row_key, uniform
from paceline.verification.sampler_state import SamplerState


class Draws(Protocol):
    """Chance for one sequence in one round."""

    def accept(self, weight: float, against: float, position: int) -> bool:
        """True with probability min(1, weight / against), never where ``weight`` is 0.

        ``against`` is positive. ``position`` is that of the draft in question.
        """

    def sample(self, law: TokenLaw, position: int, purpose: Purpose) -> int:
        """One id drawn from ``law``."""


class CounterDraws:
    """Draws that are functions of (seed, choice, position, purpose, round) alone."""

    def __init__(self, *, seed: int, choice: int, round_start: int) -> None:
        self._seed = seed
        self._choice = choice
        self._round_start = round_start

    def accept(self, weight: float, against: float, position: int) -> bool:
        """Test u · against < weight: no division, and strict, so that weight 0 is never accepted."""
        return uniform(self._key(position, Purpose.ACCEPT)) * against < weight

    def sample(self, law: TokenLaw, position: int, purpose: Purpose) -> int:
        """Gumbel-max with the noise of this position and purpose."""
        return law.draw(row_key(self._key(position, purpose)))

    def _key(self, position: int, purpose: Purpose) -> NoiseKey:
        round_start = 0 if purpose is Purpose.TARGET else self._round_start
        return NoiseKey(self._seed, self._choice, position, purpose, round_start)


def counter_draws(state: SamplerState) -> Draws:
    """Draws of a round that starts at the state's position."""
    return CounterDraws(seed=state.seed, choice=state.choice, round_start=state.position)
