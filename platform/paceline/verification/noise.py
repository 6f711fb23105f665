"""Noise as a pure function of its key: no generator, no state, the same bits on every device.

A *row key* is a 64-bit hash of (seed, choice, position, purpose, round); the noise of one token id is
one more SplitMix64 finaliser over the row key and the id (Steele, Lea, Flood 2014). Integers are equal
bit for bit in Python, numpy and torch; logarithms are taken in float64 and may differ in the last ulp.

Fractions have 52 bits and sit at half steps, so that they are exact in float64 and never 0 or 1. The
Gumbel tail then reaches 36.7, far beyond what a vocabulary of 10^6 ids needs.
"""

from dataclasses import dataclass
from enum import IntEnum

import numpy as np
import numpy.typing as npt
import torch

_MASK = (1 << 64) - 1
_GOLDEN = 0x9E3779B97F4A7C15
_FIELD = 0xD1B54A32D192ED03
_MIX_1 = 0xBF58476D1CE4E5B9
_MIX_2 = 0x94D049BB133111EB
_FRACTION_BITS = 52
_FRACTION_SHIFT = 64 - _FRACTION_BITS
_FRACTION_MASK = (1 << _FRACTION_BITS) - 1
_STEP = 2.0**-_FRACTION_BITS


class Purpose(IntEnum):
    """What a draw is for: draws with different purposes are independent."""

    TARGET = 0  # the target's own draw; a coupled drafter shares it
    DRAFT = 1  # a drafter's draw from a law that it sends along
    ACCEPT = 2  # the uniform of an acceptance test
    RESIDUAL = 3  # the token after the last accepted draft, under `rejection` and `block`


@dataclass(frozen=True, slots=True)
class NoiseKey:
    """Names one row of noise.

    ``position`` is absolute: the index of the token to be drawn, prompt included. ``round_start`` is the
    committed length at which the round (or the proposal) started; it stays 0 for TARGET, whose noise
    belongs to the position alone. See docs/adr/0001-noise-keyed-by-round.md.
    """

    seed: int
    choice: int
    position: int
    purpose: Purpose
    round_start: int = 0


def _mix(x: int) -> int:
    """SplitMix64's finaliser on an unsigned 64-bit integer; works on numpy uint64 arrays as well."""
    x = ((x ^ (x >> 30)) * _MIX_1) & _MASK
    x = ((x ^ (x >> 27)) * _MIX_2) & _MASK
    return x ^ (x >> 31)


def row_key(key: NoiseKey) -> int:
    """Unsigned 64-bit hash of all fields; seeds are taken modulo 2^64."""
    state = _mix((key.seed + _GOLDEN) & _MASK)
    for field in (key.choice, key.position, int(key.purpose), key.round_start):
        state = _mix(state ^ (((field + 1) * _FIELD) & _MASK))
    return state


def signed(x: int) -> int:
    """The same 64 bits as a signed integer, which is what torch takes."""
    return x - (1 << 64) if x >> 63 else x


def _xor_shift(x: torch.Tensor, shift: int) -> torch.Tensor:
    """``x ^ (x >>> shift)`` in place; torch shifts arithmetically, so the sign bits are masked off."""
    return x.bitwise_xor_((x >> shift).bitwise_and_((1 << (64 - shift)) - 1))


def token_bits(row: int | torch.Tensor, token_ids: torch.Tensor) -> torch.Tensor:
    """64 noise bits per token id, as int64 (the bits of an unsigned number).

    ``row`` is a row key, or an int64 tensor of row keys that broadcasts against ``token_ids`` (int64).
    """
    offset = signed((row + _GOLDEN) & _MASK) if isinstance(row, int) else row + signed(_GOLDEN)
    x = token_ids * signed(_GOLDEN) + offset
    x = _xor_shift(x, 30).mul_(signed(_MIX_1))
    x = _xor_shift(x, 27).mul_(signed(_MIX_2))
    return _xor_shift(x, 31)


def token_bits_numpy(row: int, token_ids: npt.NDArray[np.uint64]) -> npt.NDArray[np.uint64]:
    """Readable reference of `token_bits` on unsigned integers."""
    x = token_ids * np.uint64(_GOLDEN) + np.uint64((row + _GOLDEN) & _MASK)
    x = (x ^ (x >> np.uint64(30))) * np.uint64(_MIX_1)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(_MIX_2)
    return x ^ (x >> np.uint64(31))


def uniform(key: NoiseKey, index: int = 0) -> float:
    """The ``index``-th number of a row of noise in the open interval (0, 1), exact in float64."""
    bits = _mix((row_key(key) + (index + 1) * _GOLDEN) & _MASK)
    return ((bits >> _FRACTION_SHIFT) + 0.5) * _STEP


def gumbel(bits: torch.Tensor) -> torch.Tensor:
    """Standard Gumbel noise, float64, of `token_bits`."""
    fraction = ((bits >> _FRACTION_SHIFT).bitwise_and_(_FRACTION_MASK).double() + 0.5) * _STEP
    return fraction.log_().neg_().log_().neg_()


def may_exceed(bits: torch.Tensor, level: float) -> torch.Tensor:
    """Which ids may have Gumbel noise above ``level``: one integer comparison per id, no logarithm.

    Never misses an id; may name a few more, because the level is lowered by more than any rounding.
    """
    level = min(level, 64.0)  # beyond the largest noise there is
    lowered = level - 1e-6 - 1e-12 * abs(level)
    # P(G <= level) as a fraction of 64 bits: e^(-e^-level). Below -700 the inner exponential overflows.
    fraction = float(np.exp(-np.exp(-lowered))) if lowered > -700.0 else 0.0
    least = max(0, int(fraction * 2.0**64) - (1 << (_FRACTION_SHIFT + 2)))
    sign = -(1 << 63)  # flipping the sign bit makes a signed comparison an unsigned one
    return (bits ^ sign) >= signed(least & _MASK ^ (1 << 63))
