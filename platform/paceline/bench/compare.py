"""A/B comparisons: order of the blocks, and the ratio of two speeds with its uncertainty."""

import random
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from paceline.errors import ConfigError

MIN_BLOCKS = 5
_RESAMPLES = 10_000


@dataclass(frozen=True, slots=True)
class BlockPair:
    """Tokens and charged seconds of both sides in one block, over the answers that count on both."""

    a_tokens: int
    a_seconds: float
    b_tokens: int
    b_seconds: float

    @property
    def ratio(self) -> float:
        """Speed of b over speed of a in this block alone."""
        return (self.b_tokens / self.b_seconds) / (self.a_tokens / self.a_seconds)


@dataclass(frozen=True, slots=True)
class Comparison:
    """Speed of b over speed of a, with a 95 % interval."""

    ratio: float
    low: float
    high: float
    block_ratios: tuple[float, ...]


def block_orders(num_blocks: int, sides: Sequence[str] = ("a", "b"), *, seed: int) -> list[tuple[str, ...]]:
    """Which side goes when in each block: drawn for the first, then moved on by one, so that drift cancels."""
    drawn = random.Random(seed).sample(sides, len(sides))
    starts = (block % len(sides) for block in range(num_blocks))
    return [(*drawn[start:], *drawn[:start]) for start in starts]


def compare(pairs: Sequence[BlockPair], *, seed: int = 0) -> Comparison:
    """Ratio of sums, and its percentile bootstrap over whole blocks.

    Blocks are drawn with replacement because requests of a block share the machine's mood; with five of
    them the interval is rather narrow. Raises ConfigError for fewer than `MIN_BLOCKS`, or an empty side.
    """
    if len(pairs) < MIN_BLOCKS:
        raise ConfigError(f"A comparison needs at least {MIN_BLOCKS} blocks with answers on both sides.")
    table = np.array([(p.a_tokens, p.a_seconds, p.b_tokens, p.b_seconds) for p in pairs], dtype=np.float64)
    if (table <= 0).any():
        raise ConfigError("A block has no tokens on one side; nothing can be compared.")
    drawn = np.random.default_rng(seed).integers(len(pairs), size=(_RESAMPLES, len(pairs)))
    low, high = np.percentile(_ratios(table[drawn].sum(axis=1)), (2.5, 97.5))
    ratio = float(_ratios(table.sum(axis=0)[None])[0])
    return Comparison(ratio, float(low), float(high), tuple(pair.ratio for pair in pairs))


def _ratios(sums: np.ndarray) -> np.ndarray:
    """Ratios ``[n]`` of sums ``[n, 4]`` in the order of `BlockPair`."""
    ratios: np.ndarray = (sums[:, 2] / sums[:, 3]) / (sums[:, 0] / sums[:, 1])
    return ratios
