"""Order of blocks and the interval of a ratio."""

import random

import pytest

from paceline.bench.compare import BlockPair, block_orders, compare
from paceline.errors import ConfigError


def _pair(a_rate: float, b_rate: float, tokens: int = 1000) -> BlockPair:
    return BlockPair(tokens, tokens / a_rate, tokens, tokens / b_rate)


def test_orders_alternate_from_a_drawn_start():
    """Each side is first in half of the blocks, and over seeds either may begin."""
    orders = block_orders(6, seed=3)

    assert orders[::2] == [orders[0]] * 3
    assert orders[1::2] == [orders[0][::-1]] * 3
    assert {block_orders(1, seed=seed)[0] for seed in range(20)} == {("a", "b"), ("b", "a")}


def test_of_several_sides_each_comes_at_every_place_equally_often():
    """So none is always the one behind a slow neighbour, or the last on a machine that gets slower."""
    orders = block_orders(8, ("a", "b", "c", "d"), seed=1)

    for place in range(4):
        assert sorted(order[place] for order in orders) == ["a", "a", "b", "b", "c", "c", "d", "d"]


def test_the_ratio_is_of_sums():
    """Blocks with more time weigh more."""
    pairs = [BlockPair(100, 10.0, 100, 5.0)] * 4 + [BlockPair(100, 100.0, 100, 100.0)]

    assert compare(pairs).ratio == pytest.approx((500 / 120) / (500 / 140))


def test_equal_blocks_have_no_uncertainty():
    """The interval is the ratio itself."""
    result = compare([_pair(10, 13)] * 5)

    assert (result.ratio, result.low, result.high) == pytest.approx((1.3, 1.3, 1.3))
    assert result.block_ratios == pytest.approx([1.3] * 5)


def test_the_interval_covers_the_truth():
    """With 20 noisy blocks a true ratio of 1.2 lies in the 95 % interval in at least 85 of 100 experiments."""
    draw = random.Random(5)
    hits = 0
    for _ in range(100):
        pairs = [_pair(10 * draw.lognormvariate(0, 0.1), 12 * draw.lognormvariate(0, 0.1)) for _ in range(20)]
        result = compare(pairs)
        hits += result.low <= 1.2 <= result.high

    assert hits >= 85


def test_drift_that_both_sides_share_cancels():
    """A machine that gets slower from block to block leaves the ratio and its interval alone."""
    result = compare([_pair(10 / (1 + block), 15 / (1 + block)) for block in range(6)])

    assert (result.low, result.high) == pytest.approx((1.5, 1.5))


@pytest.mark.parametrize("pairs", [[_pair(1, 1)] * 4, [*[_pair(1, 1)] * 5, BlockPair(0, 1.0, 5, 1.0)]])
def test_too_little_is_refused(pairs):
    """Fewer than five blocks, or a block with nothing on one side."""
    with pytest.raises(ConfigError):
        compare(pairs)
