"""The compiled draw gives what its readable form gives."""

import math

import pytest
import torch

from paceline.kernels import token_noise
from paceline.kernels.token_noise import NoisyRow
from paceline.verification.noise import gumbel, token_bits
from paceline.verification.noisy_best import best_slots_torch

pytestmark = pytest.mark.skipif(
    not token_noise.serves(NoisyRow(torch.zeros(1), None, 0)), reason="there is no C compiler"
)


def random_row(index: int, size: int, dtype: torch.dtype) -> NoisyRow:
    generator = torch.Generator().manual_seed(index)
    weights = [0.0, 0.5, 3.0, 30.0][index % 4] * torch.randn(size, generator=generator, dtype=torch.float64)
    if index % 3 == 0:
        weights = weights.round()
    if index % 5 == 0:
        weights[torch.rand(size, generator=generator) < 0.7] = -math.inf
        weights[size // 2] = 0.0
    ids = None if index % 2 else 3 * torch.arange(size) + 1
    return NoisyRow(weights.to(dtype), ids, (index * 0x9E3779B97F4A7C15 + 5) % 2**64)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("count", [1, 3, 8])
def test_kernel_and_readable_form_agree(count: int, dtype: torch.dtype) -> None:
    """The same slots in the same order; scores within the last ulp of two logarithms."""
    for index in range(60):
        for size in (1, 2, 60, 300, 5000):
            row = random_row(index, size, dtype)
            compiled, readable = token_noise.best_slots([row], count=count)[0], best_slots_torch(row, count=count)

            assert [slot for slot, _ in compiled] == [slot for slot, _ in readable]
            assert [score for _, score in compiled] == pytest.approx([score for _, score in readable], rel=1e-14)


def test_best_of_every_score() -> None:
    """The ranking is that of weights plus noise taken in full."""
    for index in range(40):
        row = random_row(index, 2000, torch.float32)
        ids = torch.arange(2000) if row.token_ids is None else row.token_ids
        scores = row.log_weights.double() + gumbel(token_bits(row.row_key, ids))
        finite = int((scores > -math.inf).sum())

        ranking = torch.sort(scores, descending=True, stable=True).indices[: min(20, finite)].tolist()
        assert [slot for slot, _ in token_noise.best_slots([row], count=20)[0]] == ranking


def test_ties_go_to_the_lower_id() -> None:
    """Weights so large that noise is lost in rounding tie: the lowest ids come first, in order."""
    row = NoisyRow(torch.full((100,), 1e18, dtype=torch.float64), None, 5)

    assert [slot for slot, _ in token_noise.best_slots([row], count=3)[0]] == [0, 1, 2]
    assert [slot for slot, _ in best_slots_torch(row, count=3)] == [0, 1, 2]


def test_no_close_winner_is_missed() -> None:
    """Among thousands of rows of nearly equal weights some are won by a hair: no bound on noise is too low."""
    generator = torch.Generator().manual_seed(4)
    weights = 0.01 * torch.randn(3000, 2000, generator=generator)
    keys = torch.randint(2**62, (3000,), generator=generator)
    scores = weights.double() + gumbel(token_bits(keys[:, None], torch.arange(2000)))

    rows = [NoisyRow(row, None, key) for row, key in zip(weights, keys.tolist(), strict=True)]
    assert [best[0].slot for best in token_noise.best_slots(rows, count=1)] == scores.argmax(dim=1).tolist()


def test_bound_holds_in_the_far_tail() -> None:
    """Over millions of ids of equal weight the winner has the largest noise there is."""
    size = 3_000_000
    bits = token_bits(77, torch.arange(size))

    assert token_noise.best_slots([NoisyRow(torch.zeros(size), None, 77)], count=1)[0][0].slot == int(
        gumbel(bits).argmax()
    )


def test_rows_do_not_depend_on_company() -> None:
    """A row gives the same in a batch, on two threads, as alone on one."""
    rows = [random_row(index, 700 + index, torch.float32) for index in range(12)]
    alone = [token_noise.best_slots([row], count=2)[0] for row in rows]
    threads = torch.get_num_threads()
    try:
        torch.set_num_threads(2)
        assert token_noise.best_slots(rows, count=2) == alone
    finally:
        torch.set_num_threads(threads)
