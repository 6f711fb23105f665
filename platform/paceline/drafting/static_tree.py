"""A tree that is settled beforehand: which choices of which depth are worth a node, best first (Cai et al. 2024).

Medusa checkpoints bring one. Beside an EAGLE or MTP head it takes the place of dynamic trees.
"""

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path

from paceline.drafting.candidates import Ranks
from paceline.drafting.fixed_shape import fixed_shape
from paceline.errors import ModelRefusedError

FILE = "static_tree.json"
_KEY = "paths"


class StaticTree:
    """Paths of ranks: ``(1, 0)`` is the first choice of head 1 behind the second choice of head 0."""

    def __init__(self, paths: Sequence[Ranks]) -> None:
        """``paths`` come best first, each behind its beginning, so that any number of the first is a tree."""
        self._paths = tuple(paths)

    def shape(self, max_depth: int, max_nodes: int, top_k: int) -> Mapping[Ranks, int]:
        """Number of children of every inner node of the best nodes within these limits, () being the last token."""
        if top_k == 1:
            return fixed_shape(max_depth, max_nodes, 1)
        fitting = [path for path in self._paths if len(path) <= max_depth and max(path) < top_k]
        return Counter(path[:-1] for path in fitting[:max_nodes])


def read_static_tree(folder: Path, num_heads: int | None) -> StaticTree | None:
    """The tree of the heads in ``folder``, ``num_heads`` deep at most; None where it has no such file.

    Raises ModelRefusedError for paths that make no tree, or that want more heads than there are.
    """
    file = folder / FILE
    if not file.exists():
        return None
    try:
        paths = [tuple(path) for path in json.loads(file.read_text("utf-8"))[_KEY]]
        numbers = all(type(rank) is int and rank >= 0 for path in paths for rank in path)
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ModelRefusedError(f"{file} is refused: it must be an object with a list '{_KEY}' ({error!r}).") from error
    deepest = max(map(len, paths), default=0) if num_heads is None else num_heads
    if not numbers or not paths or not all(1 <= len(path) <= deepest for path in paths):
        raise ModelRefusedError(f"{file} is refused: a path is 1 to {deepest} ranks from 0, one for each head.")
    seen: set[Ranks] = {()}
    for path in paths:
        *above, rank = path
        sibling_missing = rank > 0 and (*above, rank - 1) not in seen
        if path in seen or tuple(above) not in seen or sibling_missing:
            raise ModelRefusedError(
                f"{file} is refused: {list(path)} comes twice, or before the one above it or the better one beside it."
            )
        seen.add(path)
    return StaticTree(paths)
