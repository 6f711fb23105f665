"""The losses of `distillation` through a frozen output head, without keeping the logits.

Logits of a draft vocabulary are some thousand numbers a token, while what learns needs only their gradient with
respect to the hidden state. It has a closed form, so loss and gradient are computed together, some rows at a time.
torch.compile makes a few passes over memory of a dozen and more, which halves the time where the vocabulary is large.
"""

import shutil
from collections.abc import Callable
from functools import lru_cache
from typing import Any

import torch
from torch.nn.functional import linear

from paceline.training.distillation import STEEPNESS

_ROWS = 256  # at a time: logits of so many fit into a core's cache
_ROWS_OF_DEVICE = 4096  # an accelerator wants more work at a time
_WORTH_COMPILING = 2048  # tokens of a draft vocabulary; compiling takes a quarter of a minute
_CPP_COMPILERS = ("g++", "clang++")

# (logits of the drafter, of the target) -> (sum of the loss, its gradient with respect to the former)
_Loss = Callable[[torch.Tensor, torch.Tensor], tuple[torch.Tensor, torch.Tensor]]


def fused_loss(
    hidden: torch.Tensor,
    target_hidden: torch.Tensor,
    output: torch.Tensor,
    *,
    hybrid: bool,
    target_output: torch.Tensor | None = None,
) -> torch.Tensor:
    """The sum over n of `kl_loss`, or of `hybrid_loss` if ``hybrid``, in nats.

    ``hidden`` and ``target_hidden`` are ``[n, hidden]``, what the output heads read; ``output`` is ``[draft vocab,
    hidden]``, frozen, and the target's too unless ``target_output`` is given. Products are taken in the type of
    ``output``, everything else in float32. Gradients reach ``hidden`` only.
    """
    other = output if target_output is None else target_output
    result: torch.Tensor = _FusedLoss.apply(hidden, target_hidden, (output, other), hybrid)  # type: ignore[no-untyped-call]
    return result


class _FusedLoss(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        hidden: torch.Tensor,
        target_hidden: torch.Tensor,
        outputs: tuple[torch.Tensor, torch.Tensor],  # of drafter and target
        hybrid: bool,
    ) -> torch.Tensor:
        output, target_output = outputs
        gradient = torch.empty_like(hidden)
        total = hidden.new_zeros((), dtype=torch.float32)
        rows = _ROWS if hidden.is_cpu else _ROWS_OF_DEVICE
        compute = _loss(hybrid=hybrid, compiled=len(output) >= _WORTH_COMPILING)
        for start in range(0, len(hidden), rows):
            part = slice(start, start + rows)
            draft = linear(hidden[part].to(output.dtype), output)
            target = linear(target_hidden[part].to(output.dtype), target_output)
            loss, slope = compute(draft, target)
            total += loss
            gradient[part] = slope.to(output.dtype) @ output
        ctx.save_for_backward(gradient)
        return total

    @staticmethod
    def backward(ctx: Any, *grads: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        (gradient,) = ctx.saved_tensors
        return gradient * grads[0].to(gradient.dtype), None, None, None


@lru_cache
def _loss(*, hybrid: bool, compiled: bool) -> _Loss:
    loss = _hybrid if hybrid else _kl
    if not compiled or not any(map(shutil.which, _CPP_COMPILERS)):
        return loss
    return torch.compile(loss, dynamic=True)


def _laws(draft: torch.Tensor, target: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """(law of the drafter, law of the target, KL [n]) in float32."""
    draft_log, target_log = torch.log_softmax(draft.float(), -1), torch.log_softmax(target.float(), -1)
    target_law = target_log.exp()
    kl = (target_log.sub_(draft_log).mul_(target_law)).sum(-1)
    return draft_log.exp_(), target_law, kl


def _kl(draft: torch.Tensor, target: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Sum of the loss, and its gradient with respect to ``draft``."""
    draft_law, target_law, kl = _laws(draft, target)
    return kl.sum(), draft_law.sub_(target_law)


def _hybrid(draft: torch.Tensor, target: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    draft_law, target_law, kl = _laws(draft, target)
    # The overlap is the sum of the smaller of both; only where that is the drafter's has it a slope.
    slope = draft_law * (draft_law < target_law)
    inside = slope.sum(-1, keepdim=True)
    overlap = torch.minimum(draft_law, target_law).sum(-1, keepdim=True)
    weight = torch.exp(-STEEPNESS * overlap)
    loss = weight[:, 0] * kl + (1 - weight[:, 0]) * (1 - overlap[:, 0])
    # d overlap / d logits = slope - law * inside
    gradient = weight * (draft_law - target_law) - (1 - weight) * (slope - draft_law * inside)
    return loss.sum(), gradient
