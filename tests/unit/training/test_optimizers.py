"""Which optimizer moves which weights."""

import pytest
import torch

from paceline.training.optimizers import optimizers


def _names(learnt, optimizer):
    held = {id(tensor) for group in optimizer.param_groups for tensor in group["params"]}
    return {name for name, tensor in learnt.items() if id(tensor) in held}


def test_matrices_are_for_muon_and_the_rest_is_for_adamw():
    """Vectors, embeddings and output heads are not made orthogonal; nothing is left out."""
    shapes = {"fc.weight": (4, 8), "norm.weight": (4,), "model.embed_tokens.weight": (9, 4), "lm_head.weight": (9, 4)}
    learnt = {name: torch.nn.Parameter(torch.randn(shape)) for name, shape in shapes.items()}

    muon, adamw = optimizers(learnt, learning_rate=1e-3, weight_decay=0.0)

    assert _names(learnt, muon) == {"fc.weight"}
    assert _names(learnt, adamw) == set(shapes) - {"fc.weight"}


def test_a_matrix_moves_alike_in_all_directions():
    """The update has the size of AdamW's typical ones, 0.2 of the rate for each number, however uneven the gradient."""
    weight = torch.nn.Parameter(torch.zeros(16, 16))
    (muon,) = optimizers({"weight": weight}, learning_rate=1e-2, weight_decay=0.0)
    weight.grad = torch.diag(torch.logspace(0, -1, 16))
    muon.step()

    singular = torch.linalg.svdvals(weight.detach())
    assert singular.min() > singular.max() / 2
    assert weight.detach().square().mean().sqrt().item() == pytest.approx(0.2 * 1e-2, rel=0.3)
