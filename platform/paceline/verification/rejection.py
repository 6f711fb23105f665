"""Modified rejection sampling (Leviathan et al. 2023, Chen et al. 2023), on trees recursively without replacement.

Siblings x_1, x_2, ... were drawn in turn from q without replacement. Beginning with the target law p:

    accept x_i with probability min(1, p(x_i) / q(x_i)) and go on below it, else
    p <- norm(max(0, p - q)),  q <- norm(q without x_i)

and where none is accepted the token is drawn from the p that is left. The output has the target's law exactly,
provided that q is the law that the drafts were really drawn from and that which drafts are shown does not depend
on what was drawn (SpecInfer, Miao et al. 2023; Sequoia, Chen et al. 2024). A draft that was chosen has a q of
one-hot: rejecting it takes it out of p.
"""

from collections.abc import Generator
from typing import Any

import torch

from paceline.verification.draws import Draws
from paceline.verification.law import TokenLaw
from paceline.verification.noise import Purpose
from paceline.verification.rows import Verdict
from paceline.verification.siblings import Siblings, siblings_below
from paceline.verification.walk import Ask, Walk


class Remainder:
    """What rejections have left of the target law, looked at on the support of the draft law only.

    Elsewhere max(0, p - q) is p. ``_left`` are weights, not probabilities: they and the p outside the support
    sum to ``mass``.
    """

    def __init__(self, law: TokenLaw, support: torch.Tensor) -> None:
        self._law = law
        self._support = support
        self._left = law.probabilities_of(support).cpu()  # float64 [m]
        self._outside = max(0.0, 1.0 - float(self._left.sum()))
        self.mass = 1.0

    def weight(self, slot: int) -> float:
        """Of one id of the support."""
        return float(self._left[slot])

    def reject(self, draft_probs: torch.Tensor) -> None:
        """Take ``draft_probs`` (float64 [m], sum 1) from the normalised law and keep what stays positive."""
        self._left = (self._left - self.mass * draft_probs).clamp_(min=0.0)
        self.mass = self._outside + float(self._left.sum())

    def law(self) -> TokenLaw:
        """The law of the token that takes the place of the rejected drafts.

        Where nothing is left, which only rounding can bring about, the target law itself.
        """
        return self._law.reweighted(self._support, self._left)


def verify(walk: Walk, draws: Draws) -> Generator[Ask, Any, Verdict]:
    """Go down as long as one of the children is accepted."""
    while True:
        law = yield from walk.law()
        siblings = siblings_below(walk.row.proposal, walk.node)
        if siblings:
            remainder = Remainder(law, siblings.support)
            accepted = first_accepted(siblings, remainder, walk, draws)
            if accepted is not None:
                walk.descend(siblings.nodes[accepted])
                continue
            law = remainder.law()
        token_id = yield from walk.draw(law, walk.key(Purpose.RESIDUAL))
        return walk.verdict(token_id)


def first_accepted(siblings: Siblings, remainder: Remainder, walk: Walk, draws: Draws) -> int | None:
    """Test the siblings in order; which one is accepted. Takes what is rejected from ``remainder``."""
    key = walk.key(Purpose.ACCEPT)
    drawn_from = siblings.draft_probs
    for index, slot in enumerate(siblings.slots):
        draft_probs = siblings.one_hot(index) if drawn_from is None else drawn_from
        draft_prob = float(draft_probs[slot])
        # A repeat cannot have been drawn: neither it nor what follows is tested. No mass is left by rounding only.
        if draft_prob <= 0.0 or remainder.mass <= 0.0:
            return None
        if draws.accept(remainder.weight(slot), remainder.mass * draft_prob, key, sibling=index):
            return index
        remainder.reject(draft_probs)
        drawn_from = None if drawn_from is None else without(drawn_from, slot)
    return None


def without(draft_probs: torch.Tensor, slot: int) -> torch.Tensor:
    """The law of the next draw without replacement; all zeros where nothing is left to be drawn."""
    left = draft_probs.clone()
    left[slot] = 0.0
    return left / left.sum() if float(left.sum()) > 0.0 else left
