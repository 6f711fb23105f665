"""The compiled truncation gives what its readable form gives."""

import math

import pytest
import torch

from paceline.kernels import token_law
from paceline.kernels.token_law import ALL_MASKED, NOT_FINITE, Warp, WarpedRow
from paceline.verification.truncation import warped_row

pytestmark = pytest.mark.skipif(not token_law.serves(torch.zeros(1)), reason="there is no C compiler")

WARPS = {
    "nothing": Warp(),
    "temperature": Warp(temperature=0.7),
    "tiny temperature": Warp(temperature=1e-30),
    "min_p": Warp(log_min_p=math.log(0.05)),
    "min_p of one": Warp(log_min_p=0.0),
    "top_k of one": Warp(top_k=1),
    "top_k": Warp(top_k=40),
    "top_k above the number of blocks": Warp(top_k=2000),
    "top_k above the vocabulary": Warp(top_k=100_000),
    "top_p": Warp(top_p=0.9),
    "top_p that equal scores reach exactly": Warp(top_p=0.5),
    "top_p tiny": Warp(top_p=1e-9),
    "top_p almost one": Warp(top_p=0.99999),
    "all, hot": Warp(1.6, math.log(0.001), 300, 0.8),
    "all, cold": Warp(0.3, math.log(0.001), 300, 0.8),
}
SHAPES = {
    "peaked": lambda noise: 6 * noise,
    "flat": lambda noise: 0.01 * noise,
    "tied": lambda noise: noise.round(),
    "all equal": torch.zeros_like,
    "mostly masked": lambda noise: torch.where(noise > 1.5, noise, -math.inf),
    "ascending": lambda noise: noise.sort().values,
    "best ones far apart": lambda noise: torch.where(
        torch.arange(len(noise)) % 16 == 3, -torch.arange(len(noise), dtype=noise.dtype), -1e4
    ),
    "far outlier": lambda noise: torch.where(noise == noise.min(), -1e30, noise),
}


def assert_same(one: WarpedRow, other: WarpedRow) -> None:
    assert torch.equal(one.log_weights, other.log_weights)
    assert (one.token_ids is None) == (other.token_ids is None)
    assert one.token_ids is None or torch.equal(one.token_ids, other.token_ids)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("warp", WARPS)
def test_kernel_and_readable_form_agree(warp: str, dtype: torch.dtype) -> None:
    """The same ids stay, and their scores have the same bits."""
    generator = torch.Generator().manual_seed(1)
    for size in (1, 7, 130, 2048, 5003):
        for shape in SHAPES.values():
            scores = shape(torch.randn(size, generator=generator, dtype=torch.float64)).to(dtype)
            if not torch.isfinite(scores).any():
                continue

            assert_same(token_law.warp_rows([scores], [WARPS[warp]])[0], warped_row(scores, WARPS[warp]))


def test_rows_do_not_depend_on_company() -> None:
    """A row gives the same in a batch, on two threads, as alone on one."""
    logits = list(torch.randn(9, 3001, generator=torch.Generator().manual_seed(2)))
    warps = [list(WARPS.values())[index % len(WARPS)] for index in range(9)]
    alone = [token_law.warp_rows([row], [warp])[0] for row, warp in zip(logits, warps, strict=True)]
    threads = torch.get_num_threads()
    try:
        torch.set_num_threads(2)
        together = token_law.warp_rows(logits, warps)
    finally:
        torch.set_num_threads(threads)

    for one, other in zip(alone, together, strict=True):
        assert_same(one, other)


def test_greedy_rows_give_the_lowest_best_id() -> None:
    """Temperature 0 is the argmax, in both forms."""
    scores = torch.randn(4000, generator=torch.Generator().manual_seed(3))
    scores[[3900, 12, 700]] = 9.0

    assert token_law.warp_rows([scores], [Warp(temperature=0.0)])[0].best_id == 12
    assert warped_row(scores, Warp(temperature=0.0)).best_id == 12


@pytest.mark.parametrize(("value", "error"), [(math.nan, NOT_FINITE), (math.inf, NOT_FINITE), (-math.inf, ALL_MASKED)])
def test_rows_without_a_distribution_are_named(value: float, error: int) -> None:
    """What is wrong with a row comes back as a code, for that row only."""
    good = torch.zeros(100)
    bad = torch.full((100,), -math.inf)
    bad[70] = value

    assert [row.best_id for row in token_law.warp_rows([good, bad], [Warp(), Warp()])] == [0, error]
    assert warped_row(bad, Warp()).best_id == error


def test_log_total_is_accurate() -> None:
    """Within a few ulp of the sum of exponentials in float64, masked and distant scores included."""
    generator = torch.Generator().manual_seed(4)
    for size in (1, 3, 8, 1000, 49152):
        scores = 8 * torch.randn(size, generator=generator)
        scores[1::5] = -math.inf
        scores[2::7] -= 2000.0

        assert token_law.log_total(scores) == pytest.approx(float(torch.logsumexp(scores.double(), 0)), rel=1e-14)
