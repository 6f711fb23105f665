"""The noise: fixed bits, the right law, and independence between purposes."""

import math

import numpy as np
import pytest
import torch

from chi_square import LEAST_P, fit_p_value
from noise_checks import MANY, NEAR_FLAT, acceptance_uniforms, assert_independent_draws, draw_all, row_keys
from paceline.verification.law import TokenLaw
from paceline.verification.noise import NoiseKey, Purpose, gumbel, row_key, token_bits, token_bits_numpy, uniform

# (seed, choice, position, purpose, round) -> row key, then bits of ids 0, 1, 49151, 151935
GOLDEN = [
    (
        NoiseKey(0, 0, 0, Purpose.TARGET),
        0xB3AFD6A44EE1B450,
        (0x8CF45BAE1E4D15F4, 0x92519EF46DE9B31A, 0xC0D252E997CA2313, 0x43CCFC94631DE8C5),
    ),
    (
        NoiseKey(1, 0, 7, Purpose.TARGET),
        0xFB0B4845A3CD7858,
        (0x001EF2E8AB73CDA7, 0x33771BBD916D4306, 0xB7749397BC8D6D71, 0x9BAEF501E82C4C66),
    ),
    (
        NoiseKey(2**64 - 1, 3, 1000, Purpose.ACCEPT, 996),
        0x7DDD0CD15658E492,
        (0x41CECA34D2229B28, 0x783BEA93D199B8B1, 0xBA3FD9BD1F10E3E9, 0x2007160D4D337D5C),
    ),
    (
        NoiseKey(42, 1, 5, Purpose.RESIDUAL, 3),
        0xF4FE85786B3B18A8,
        (0x4B4A2F520784E7A4, 0x1FA10DE61F1351BE, 0x637F907242D4769C, 0x6A54F5BDA7F17A89),
    ),
]
LAWS = {
    "near flat": NEAR_FLAT,
    "skewed": torch.tensor([4.0, 2.5, 2.0, 1.0, 0.0, -1.0, -2.0, -3.0, -math.inf]),
    "one rare": torch.tensor([6.0, 0.0, -2.0]),
    "wide": torch.linspace(-3, 3, 24),
}
KEYS = {
    "over seeds at one position": (MANY, 17),
    "over positions at one seed": (12345, MANY),
}


def unsigned(bits: torch.Tensor) -> list[int]:
    return [value % 2**64 for value in bits.tolist()]


@pytest.mark.parametrize(("key", "row", "bits"), GOLDEN)
def test_golden_bits(key: NoiseKey, row: int, bits: tuple[int, ...]) -> None:
    """The noise of a key never changes: a seed replays the same text on every release and device."""
    ids = [0, 1, 49151, 151935]

    assert row_key(key) == row
    assert unsigned(token_bits(row, torch.tensor(ids))) == list(bits)
    assert token_bits_numpy(row, np.array(ids, dtype=np.uint64)).tolist() == list(bits)


def test_token_bits_are_splitmix64() -> None:
    """A row of noise is SplitMix64's published stream from the row key."""
    published = [6457827717110365317, 3203168211198807973, 9817491932198370423]

    assert unsigned(token_bits(1234567, torch.arange(3))) == published


def test_torch_and_numpy_agree() -> None:
    """The two forms give the same bits over a whole vocabulary, whatever the sign of the intermediate values."""
    for seed in range(5):
        row = row_key(NoiseKey(seed, 0, 3, Purpose.TARGET))
        ids = np.arange(50_000, dtype=np.uint64)
        expected = token_bits_numpy(row, ids)

        assert np.array_equal(token_bits(row, torch.arange(50_000)).numpy().view(np.uint64), expected)


def test_extreme_bits_give_finite_noise() -> None:
    """All zeros and all ones stay inside the open interval, so no score is infinite."""
    noise = gumbel(torch.tensor([0, -1]))

    assert torch.isfinite(noise).all()
    assert noise[0] < -3.5
    assert noise[1] > 36


@pytest.mark.parametrize("keys", KEYS)
@pytest.mark.parametrize("name", LAWS)
def test_draws_follow_the_law(name: str, keys: str) -> None:
    """A million Gumbel-max draws fit the softmax of the weights, over seeds and over positions."""
    log_weights = LAWS[name]
    drawn = draw_all(log_weights, row_keys(*KEYS[keys], Purpose.TARGET))
    counts = np.bincount(drawn, minlength=log_weights.numel())
    law = TokenLaw(log_weights).probabilities.tolist()

    assert fit_p_value(dict(enumerate(counts.tolist())), dict(enumerate(law))) > LEAST_P


@pytest.mark.parametrize("name", LAWS)
def test_the_map_is_the_one_that_serves(name: str) -> None:
    """`TokenLaw.draw` gives the tokens whose law the million draws establish."""
    keys = row_keys(MANY, 17, Purpose.TARGET)[:3000]
    law = TokenLaw(LAWS[name])

    assert [law.draw(key) for key in keys.tolist()] == draw_all(LAWS[name], keys).tolist()


def test_uniform_is_uniform() -> None:
    """The acceptance uniform fills (0, 1) evenly, and the batch form used here is the scalar one."""
    values = acceptance_uniforms(MANY, 17, 9)
    counts = np.bincount((values * 100).astype(int), minlength=100)

    assert fit_p_value(dict(enumerate(counts.tolist())), dict.fromkeys(range(100), 0.01)) > LEAST_P
    assert values[:200].tolist() == [uniform(NoiseKey(seed, 0, 17, Purpose.ACCEPT, 9)) for seed in range(200)]


def test_purposes_are_independent() -> None:
    """Draws for different purposes, positions or rounds tell nothing about each other."""
    assert_independent_draws()
