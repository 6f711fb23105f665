"""What chains of drafts would bring, from how often a drafter agrees with its target on dialogues held out."""

from dataclasses import dataclass

import torch


@dataclass(frozen=True, slots=True)
class ChainFigures:
    """Simulated at temperature 0: a chain is accepted as far as it agrees without a break."""

    tau: float  # tokens a pass, the target's own included
    accepted: tuple[float, ...]  # by depth: acceptance of a draft whose parents were accepted
    places: int  # that were looked at


def chain_figures(agrees: torch.Tensor) -> ChainFigures:
    """Figures of ``agrees``, bool ``[places, depth]``: whether the draft of a depth is right if those above are."""
    places = len(agrees)
    if not places:
        return ChainFigures(1.0, tuple(0.0 for _ in range(agrees.shape[1])), 0)
    reached = torch.cumprod(agrees.long(), dim=1).sum(0).tolist()
    before = [places, *reached[:-1]]
    accepted = tuple(now / earlier if earlier else 0.0 for now, earlier in zip(reached, before, strict=True))
    return ChainFigures(1 + sum(reached) / places, accepted, places)
