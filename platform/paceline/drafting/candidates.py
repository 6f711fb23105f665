"""Nodes of a draft tree while it grows, and the best of them as a tree."""

from collections.abc import Sequence
from dataclasses import dataclass

from paceline.core.drafts import DraftTree, SparseLaw

Ranks = tuple[int, ...]  # a node's name: its place among its siblings, from the first level down to itself


@dataclass(frozen=True, slots=True)
class Candidate:
    """A node that may be proposed.

    ``cost`` is the sum along its path of what each step is expected to lose, such as minus the logarithm of the
    chance that it is accepted; never less than the parent's, so the best nodes hold all their ancestors.
    """

    ranks: Ranks
    token_ids: tuple[int, ...]  # the path from the first level down to this node
    cost: float
    law: SparseLaw | None = None

    @property
    def depth(self) -> int:
        """1 for a child of the last context token."""
        return len(self.ranks)


def breadth_first(candidates: Sequence[Candidate]) -> list[Candidate]:
    """Level by level; within a level by parent, then by rank."""
    return sorted(candidates, key=lambda candidate: (candidate.depth, candidate.ranks))


def cheapest(candidates: Sequence[Candidate], max_nodes: int) -> list[Candidate]:
    """The ``max_nodes`` candidates of least cost, breadth first; ties go to the shallower, then to the lower rank."""
    by_cost = sorted(candidates, key=lambda candidate: (candidate.cost, candidate.depth, candidate.ranks))
    return breadth_first(by_cost[:max_nodes])


def tree_of(candidates: Sequence[Candidate]) -> DraftTree:
    """The tree of ``candidates``, given breadth first with all their ancestors."""
    places = {candidate.ranks: place for place, candidate in enumerate(candidates)}
    return DraftTree(
        tuple(candidate.token_ids[-1] for candidate in candidates),
        tuple(-1 if candidate.depth == 1 else places[candidate.ranks[:-1]] for candidate in candidates),
    )
