"""The shape of a tree whose drafts are drawn: settled before the first draw.

Drafts that are drawn from a law and tested against it must not decide which of them are shown: a tree that
keeps the likeliest of what was drawn is biased. The shape here depends on the budget alone.
"""

import heapq
from collections import Counter
from collections.abc import Mapping
from functools import lru_cache
from types import MappingProxyType

from paceline.drafting.candidates import Ranks


def _share(rank: int) -> float:
    """Assumed chance that of all siblings the one of this rank is accepted: most go to the first."""
    return 0.6 / (rank + 1) ** 2


@lru_cache(maxsize=64)
def fixed_shape(max_depth: int, max_nodes: int, top_k: int) -> Mapping[Ranks, int]:
    """Number of children of every inner node, () being the last context token.

    The nodes are those that are likeliest to be accepted under the assumed shares, best first: optimal for
    a number of nodes where the shares are true (Chen et al. 2024, Sequoia). With ``top_k`` 1 a chain.
    """
    children: Counter[Ranks] = Counter()
    waiting: list[tuple[float, int, Ranks]] = [(-_share(0), 1, (0,))] if max_depth > 0 else []
    for _ in range(max_nodes):
        if not waiting:
            break
        chance, depth, ranks = heapq.heappop(waiting)
        *above, rank = ranks
        children[tuple(above)] += 1
        if rank + 1 < top_k:
            heapq.heappush(waiting, (chance * _share(rank + 1) / _share(rank), depth, (*above, rank + 1)))
        if depth < max_depth:
            heapq.heappush(waiting, (chance * _share(0), depth + 1, (*ranks, 0)))
    return MappingProxyType(dict(children))
