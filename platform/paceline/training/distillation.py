"""Losses that make a drafter's law that of its target, and what they are measured by.

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


def simulated_tau(agrees: list[torch.Tensor], *, depth: int) -> float:
    """Tokens per pass that chains of ``depth`` drafts would bring, at temperature 0.

    ``agrees``: of each greedy answer, whether drafter and target choose the same token at each place, both given the
    answer so far. A chain from any place is accepted as far as they agree without a break. 0 without any place.
    """
    lengths = [_runs(answer, depth) for answer in agrees if len(answer)]
    return 1 + float(torch.cat(lengths).float().mean()) if lengths else 0.0


def _runs(agrees: torch.Tensor, depth: int) -> torch.Tensor:
    """``[n]``: agreements in a row from each place on, at most ``depth``; places too near the end are left out."""
    runs: list[int] = []
    run = 0
    for agreed in reversed(agrees.tolist()):
        run = run + 1 if agreed else 0
        runs.append(min(run, depth))
    runs.reverse()
    return torch.tensor(runs[: max(1, len(runs) - depth + 1)])
