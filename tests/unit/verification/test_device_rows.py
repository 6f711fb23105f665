"""The form for accelerators gives what the forms for the CPU give. Here it runs on the CPU."""

import math

import pytest
import torch

from paceline.kernels.token_law import Warp
from paceline.kernels.token_noise import NoisyRow
from paceline.verification import device_rows
from paceline.verification.noisy_best import best_slots_torch
from paceline.verification.truncation import warped_row

WARPS = [
    Warp(),
    Warp(temperature=0.7),
    Warp(log_min_p=math.log(0.05)),
    Warp(top_k=40),
    Warp(top_k=100_000),
    Warp(top_p=0.9),
    Warp(1.6, math.log(0.001), 300, 0.8),
    Warp(0.3, math.log(0.001), 3, 0.8),
    Warp(temperature=0.0),
]


def random_scores(seed: int, size: int) -> list[torch.Tensor]:
    scores = 4 * torch.randn(len(WARPS), size, generator=torch.Generator().manual_seed(seed))
    return list(scores.round() if seed % 2 else scores)


@pytest.mark.parametrize("seed", range(6))
def test_laws_are_those_of_single_rows(seed: int) -> None:
    """Rows of different parameters in one batch keep the ids, and the scores, that each keeps alone."""
    scores = random_scores(seed, 2000)
    for row, score, warp in zip(device_rows.warped_rows(scores, WARPS), scores, WARPS, strict=True):
        alone = warped_row(score, warp)
        ids = alone.token_ids if alone.token_ids is not None else torch.arange(2000)
        if warp.temperature == 0.0:
            ids, alone = torch.tensor([alone.best_id]), alone._replace(log_weights=torch.zeros(1))

        assert row.log_weights.isfinite().nonzero().squeeze(1).tolist() == ids.tolist()
        assert row.log_weights[ids].tolist() == alone.log_weights.tolist()


def test_equal_scores_that_reach_top_p_exactly() -> None:
    """The id that brings the mass to top_p is the last one kept."""
    row = device_rows.warped_rows([torch.zeros(2000)], [Warp(top_p=0.5)])[0]

    assert row.log_weights.isfinite().nonzero().squeeze(1).tolist() == list(range(1000))


@pytest.mark.parametrize("count", [1, 4])
def test_draws_are_those_of_single_rows(count: int) -> None:
    """The same slots and scores, masked rows and rows with ids of their own included."""
    rows = [
        NoisyRow(score, None if index % 2 else 5 * torch.arange(900), (index * 0x9E3779B97F4A7C15) % 2**64)
        for index, score in enumerate(random_scores(3, 900))
    ]
    rows[0].log_weights[2:] = -math.inf
    for row, found in zip(rows, device_rows.best_slots(rows, count=count), strict=True):
        assert [slot for slot, _ in found] == [slot for slot, _ in best_slots_torch(row, count=count)]


@pytest.mark.parametrize("temperature", [0.0, 0.7, 1.0])
@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_a_row_without_a_distribution_shows_in_its_draw(temperature: float, bad: float) -> None:
    """Its score is not finite, or there is none; the rows beside it are as they were."""
    good, broken = torch.zeros(50), torch.full((50,), -math.inf)
    broken[7] = bad
    rows = device_rows.warped_rows([good, broken], [Warp(temperature)] * 2)
    found = device_rows.best_slots([NoisyRow(row.log_weights, None, 9) for row in rows], count=1)

    assert math.isfinite(found[0][0].score)
    assert not found[1] or not math.isfinite(found[1][0].score)
