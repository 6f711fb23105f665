"""Simulated chains: what is accepted in a row counts."""

import pytest
import torch

from paceline.training.chain_figures import chain_figures


def test_a_chain_counts_as_far_as_it_agrees():
    """A right draft below a wrong one brings nothing; acceptance is given what lies above."""
    agrees = torch.tensor([[1, 1, 0], [1, 0, 1], [0, 1, 1], [1, 1, 1]]).bool()
    figures = chain_figures(agrees)

    assert figures.tau == 1 + (2 + 1 + 0 + 3) / 4
    assert figures.accepted == pytest.approx((3 / 4, 2 / 3, 1 / 2))
    assert figures.places == 4


def test_nothing_to_look_at_brings_nothing():
    """No place, or no right first draft: no division by zero."""
    assert chain_figures(torch.zeros(0, 2, dtype=torch.bool)).tau == 1
    assert chain_figures(torch.zeros(3, 2, dtype=torch.bool)).accepted == (0, 0)
