"""The drafts below one node together with the law that they were drawn from."""

import math
from dataclasses import dataclass

import torch

from paceline.core.drafts import DraftProposal, SparseLaw
from paceline.verification.law import sparse_probabilities


@dataclass(frozen=True, slots=True)
class Siblings:
    """Children of one node, in order, over the ids that matter to them."""

    nodes: tuple[int, ...]
    slots: tuple[int, ...]  # where each child's token is in ``support``
    support: torch.Tensor  # int64 [m], ascending
    draft_probs: torch.Tensor | None  # float64 [m], sum 1: the law drawn from. None: chosen, each is one-hot

    def __len__(self) -> int:
        return len(self.nodes)

    def one_hot(self, index: int) -> torch.Tensor:
        """float64 [m]: all mass on the token of one child."""
        law = torch.zeros(self.support.numel(), dtype=torch.float64)
        law[self.slots[index]] = 1.0
        return law


_NONE = Siblings((), (), torch.empty(0, dtype=torch.int64), None)


def siblings_below(proposal: DraftProposal | None, node: int) -> Siblings:
    """The children of ``node`` up to the first whose law cannot be the one it was drawn from.

    Without laws the drafts were chosen, not drawn: each is one-hot. All children of a node are drawn from one
    law, without replacement. A law is refused if it is missing, is no distribution, is not that of the first
    child, or does not hold its draft. The caller then goes on as if neither that child nor those behind it
    existed, which is exact: no acceptance test has been made against the false law, so the next token may be
    drawn from what is left of the target law. Testing and taking the residual would not be.
    """
    if proposal is None:
        return _NONE
    nodes = proposal.tree.children(node)
    token_ids = [proposal.tree.token_ids[child] for child in nodes]
    if not nodes or not proposal.laws:
        return _over(nodes, token_ids, torch.tensor(sorted(set(token_ids)), dtype=torch.int64), None)
    law = proposal.laws[nodes[0]] if nodes[0] < len(proposal.laws) else None
    if law is None or not _is_distribution(law):
        return _NONE
    known = 0
    while known < len(nodes) and nodes[known] < len(proposal.laws) and proposal.laws[nodes[known]] == law:
        known += 1
    return _over(nodes[:known], token_ids[:known], *sparse_probabilities(law))


def _over(
    nodes: tuple[int, ...], token_ids: list[int], support: torch.Tensor, draft_probs: torch.Tensor | None
) -> Siblings:
    """Siblings up to the first whose token has no probability."""
    ids = support.tolist()
    places = {token_id: slot for slot, token_id in enumerate(ids)}
    slots: list[int] = []
    for token_id in token_ids:
        slot = places.get(token_id)
        if slot is None or (draft_probs is not None and float(draft_probs[slot]) <= 0.0):
            break
        slots.append(slot)
    return Siblings(nodes[: len(slots)], tuple(slots), support, draft_probs)


def _is_distribution(law: SparseLaw) -> bool:
    weights = law.probabilities
    return (
        len(weights) == len(law.token_ids) == len(set(law.token_ids))
        and all(math.isfinite(weight) and weight >= 0.0 for weight in weights)
        and sum(weights) > 0.0
    )
