"""Several continuations of one text as one draft tree (as in suffix decoding, Oliaro et al. 2024)."""

import heapq
import math
from collections.abc import Sequence

from paceline.core.drafts import DraftBudget, DraftTree
from paceline.drafting.candidates import Candidate, Ranks, breadth_first, tree_of
from paceline.drafting.ngram_index import Continuation

# Weight of "something else follows": doubt grows with depth, most where little was seen.
_UNSEEN = 0.25


class _Node:
    """What followed one run of tokens: next token -> node, in order of first insertion."""

    def __init__(self) -> None:
        self.weight = 0.0
        self.below: dict[int, _Node] = {}


def merged_tree(continuations: Sequence[Continuation], budget: DraftBudget) -> DraftTree:
    """The likeliest part of all ``continuations`` within ``budget``.

    They come best first, and the first one leads at each of its nodes; other siblings rank by frequency, then by
    order. An occurrence counts by the length of its match, as a share of the longest.
    """
    root = _Node()
    for found in continuations:
        node, weight = root, found.match_length / continuations[0].match_length
        for token_id in found.token_ids:
            node = node.below.setdefault(token_id, _Node())
            node.weight += weight
    return tree_of(breadth_first(_likeliest(root, budget)))


def _likeliest(root: _Node, budget: DraftBudget) -> list[Candidate]:
    """Nodes in order of cost, as many as the budget allows; a node comes before all below it."""
    taken: list[Candidate] = []
    waiting: list[tuple[float, int, Ranks, Candidate, _Node]] = []  # ranks are unique: nothing behind is compared
    node, above = root, Candidate((), (), 0.0)
    while True:
        total = _UNSEEN + sum(child.weight for child in node.below.values())
        ranked = _ranked(node, leads=not any(above.ranks))
        for rank, (token_id, child) in enumerate(ranked[: max(1, budget.top_k)]):
            cost = above.cost + math.log(total / child.weight)
            candidate = Candidate((*above.ranks, rank), (*above.token_ids, token_id), cost)
            heapq.heappush(waiting, (cost, candidate.depth, candidate.ranks, candidate, child))
        if not waiting or len(taken) >= budget.max_nodes:
            return taken
        *_, above, node = heapq.heappop(waiting)
        taken.append(above)


def _ranked(node: _Node, *, leads: bool) -> list[tuple[int, _Node]]:
    """Children best first. ``leads``: the first continuation passes here, and its token was inserted first."""
    children = list(node.below.items())
    first = children[:1] if leads else []
    return first + sorted(children[len(first) :], key=lambda child: -child[1].weight)  # stable: ties stay in order
