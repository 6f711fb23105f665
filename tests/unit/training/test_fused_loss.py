"""The losses through a frozen output head equal those of `distillation`, and so do their gradients."""

import pytest
import torch

from paceline.training.distillation import hybrid_loss, kl_loss
from paceline.training.fused_loss import fused_loss


@pytest.mark.parametrize(("hybrid", "loss"), [(False, kl_loss), (True, hybrid_loss)])
@pytest.mark.parametrize("own_output", [False, True])
@pytest.mark.parametrize("vocab_size", [40, 2048])  # the larger one is compiled
def test_loss_and_gradient_are_those_of_the_plain_form(hybrid, loss, own_output, vocab_size):
    """More rows than are taken at a time; every gradient, whatever the laws' distance."""
    torch.manual_seed(0)
    hidden = torch.randn(600, 16, dtype=torch.float64, requires_grad=True)
    target_hidden = torch.cat([hidden[:300].detach() + 0.1 * torch.randn(300, 16), torch.randn(300, 16)])
    output, other = torch.randn(2, vocab_size, 16, dtype=torch.float64)
    target_output = other if own_output else output
    expected = loss(hidden @ output.T, target_hidden @ target_output.T).sum()
    (slope,) = torch.autograd.grad(expected, hidden)

    found = fused_loss(
        hidden, target_hidden, output, hybrid=hybrid, target_output=target_output if own_output else None
    )
    (gradient,) = torch.autograd.grad(2 * found, hidden)

    assert found.item() == pytest.approx(expected.item(), rel=1e-5)
    assert torch.allclose(gradient, 2 * slope, atol=1e-5)


def test_only_the_hidden_state_of_the_drafter_learns():
    """The target and the output head are frozen."""
    hidden, target, output = (torch.randn(4, 8, requires_grad=True) for _ in range(3))
    fused_loss(hidden, target, output, hybrid=False).backward()

    assert hidden.grad is not None
    assert target.grad is None
    assert output.grad is None
