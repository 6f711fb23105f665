"""Drawing from a law: exact although most ids are never scored."""

import math

import pytest
import torch

from paceline.core.drafts import SparseLaw
from paceline.verification.law import TokenLaw, draw_from, sparse_probabilities
from paceline.verification.noise import NoiseKey, Purpose, gumbel, may_exceed, row_key, token_bits


def key(seed: int) -> int:
    return row_key(NoiseKey(seed, 0, 5, Purpose.TARGET))


def naive_draw(log_weights: torch.Tensor, ids: torch.Tensor, row: int) -> int:
    scores = log_weights.double() + gumbel(token_bits(row, ids))
    best = scores.max()
    return min(int(i) for i, score in zip(ids.tolist(), scores.tolist(), strict=True) if score == best)


@pytest.mark.parametrize("scale", [0.0, 0.5, 2.0, 10.0])
@pytest.mark.parametrize("size", [1, 2, 100, 129, 600, 3000])
def test_draw_equals_scoring_every_id(scale: float, size: int) -> None:
    """The pruned argmax is the full argmax, for flat, peaked, tied and masked weights."""
    generator = torch.Generator().manual_seed(size)
    for seed in range(60):
        log_weights = scale * torch.randn(size, generator=generator)
        if seed % 3 == 0:
            log_weights = log_weights.round()
        if seed % 4 == 0:
            log_weights[torch.rand(size, generator=generator) < 0.6] = -math.inf
            log_weights[0] = 0.0
        ids = torch.arange(size) if seed % 2 else torch.arange(size) * 3 + 1
        law = TokenLaw(log_weights, None if seed % 2 else ids)

        assert law.draw(key(seed)) == naive_draw(log_weights, ids, key(seed))


def test_an_unlikely_id_far_outside_the_head_can_win() -> None:
    """Pruning never removes an id that large noise would have carried to the top."""
    log_weights = torch.zeros(4000)
    log_weights[:64] = 2.0
    winners = {TokenLaw(log_weights).draw(key(seed)) for seed in range(200)}

    assert any(winner >= 64 for winner in winners)


@pytest.mark.parametrize("level", [-5.0, -1.0, 0.0, 2.0, 8.0, 30.0])
def test_the_integer_threshold_never_misses(level: float) -> None:
    """Every id whose noise exceeds the level is named, and hardly any other is."""
    bits = token_bits(key(1), torch.arange(200_000))
    above = gumbel(bits) > level
    named = may_exceed(bits, level)

    assert not (above & ~named).any()
    assert int(named.sum()) <= int(above.sum()) + 5


def test_threshold_at_infinity() -> None:
    """A head without finite rest asks for nothing more."""
    assert int(may_exceed(token_bits(key(1), torch.arange(100_000)), math.inf).sum()) == 0


def test_probabilities_of_and_dense_agree() -> None:
    """Both views give the same numbers; ids outside the support have probability 0."""
    law = TokenLaw(torch.tensor([0.0, 1.0, -math.inf]), torch.tensor([2, 5, 7]))
    dense = law.dense(9)

    assert dense.sum() == pytest.approx(1.0)
    assert law.probabilities_of(torch.arange(9)).tolist() == pytest.approx(dense.tolist(), rel=1e-14)
    assert [i for i, p in enumerate(dense.tolist()) if p] == [2, 5]
    assert law.probabilities_of(torch.tensor([-1, 100])).tolist() == [0.0, 0.0]
    assert TokenLaw(torch.zeros(4)).probabilities_of(torch.tensor([-1, 3, 4])).tolist() == [0.0, 0.25, 0.0]


def test_point_law() -> None:
    """A point law always gives its id."""
    law = TokenLaw.point(7)

    assert {law.draw(key(seed)) for seed in range(20)} == {7}
    assert law.dense(9)[7] == 1.0


def test_wire_values_are_renormalised_whatever_their_order() -> None:
    """Both ends get the same law from the travelled values, in any order of ids."""
    one = SparseLaw((9, 2, 4), (0.5, 0.25, 0.2))
    other = SparseLaw((2, 4, 9), (0.25, 0.2, 0.5))
    ids, probabilities = sparse_probabilities(one)

    assert ids.tolist() == [2, 4, 9]
    assert probabilities.tolist() == pytest.approx([0.25 / 0.95, 0.2 / 0.95, 0.5 / 0.95])
    assert [draw_from(one, key(s)) for s in range(50)] == [draw_from(other, key(s)) for s in range(50)]
