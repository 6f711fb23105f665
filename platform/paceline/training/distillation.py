"""Losses that make a drafter's law that of its target: the readable form of `fused_loss`.

All laws are over the draft vocabulary: the target's is restricted to it and renormalised, so that what a drafter
cannot propose does not pull it.
"""

import torch

STEEPNESS = 3.0  # how fast the weight moves from the one loss to the other as acceptance grows


def kl_loss(draft_logits: torch.Tensor, target_logits: torch.Tensor) -> torch.Tensor:
    """``[n]``: KL(target || draft) in nats, from logits ``[n, draft vocab]`` of both."""
    target = torch.log_softmax(target_logits.float(), dim=-1)
    draft = torch.log_softmax(draft_logits.float(), dim=-1)
    return (target.exp() * (target - draft)).sum(-1)


def acceptance(draft_logits: torch.Tensor, target_logits: torch.Tensor) -> torch.Tensor:
    """``[n]``: chance that rejection sampling at temperature 1 accepts a draft, the overlap of the two laws."""
    target = torch.softmax(target_logits.float(), dim=-1)
    draft = torch.softmax(draft_logits.float(), dim=-1)
    return torch.minimum(target, draft).sum(-1)


def hybrid_loss(draft_logits: torch.Tensor, target_logits: torch.Tensor) -> torch.Tensor:
    """``[n]``: w KL + (1 - w)(1 - acceptance) with w = exp(-3 acceptance), in which w is held fixed.

    While the laws are far apart the overlap has hardly any gradient, and KL leads; later the overlap itself, which is
    what counts, takes over (LK losses, arXiv 2602.23881).
    """
    overlap = acceptance(draft_logits, target_logits)
    weight = torch.exp(-STEEPNESS * overlap.detach())
    return weight * kl_loss(draft_logits, target_logits) + (1 - weight) * (1 - overlap)
