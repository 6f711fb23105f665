"""Which keys a query may see."""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from paceline.modeling.forward_row import ForwardRow

Bools = npt.NDArray[np.bool_]
Ints = npt.NDArray[np.int64]


def visible_keys(row: ForwardRow, queries: Ints, num_keys: int, *, window: int | None) -> Bools:
    """Whether each of ``queries`` (indices into the row's tokens) sees each key: ``[queries, num_keys]``.

    Keys are numbered by place in the sequence. A query sees every place up to its own, but for nodes of a
    tree: of those only its ancestors and itself. A sliding window leaves the last ``window`` *positions*,
    which differ from places in a tree, where siblings share one.
    """
    places = (row.start + queries)[:, None]
    visible: Bools = np.arange(num_keys) <= places
    if row.branches:
        nodes = slice(row.tree_start, row.stop)
        in_tree = queries >= row.tree_start - row.start
        family = ancestors(row.parents)
        visible[in_tree, nodes] = family[queries[in_tree] - (row.tree_start - row.start)]
    if window is not None:
        positions = np.arange(num_keys)
        positions[: row.stop] = key_positions(row)
        visible &= positions > positions[places] - window
    return visible


def ancestors(parents: Sequence[int]) -> Bools:
    """Whether node j is node i or above it: ``[nodes, nodes]``."""
    family = np.eye(len(parents), dtype=np.bool_)
    for node, parent in enumerate(parents):
        if parent >= 0:
            family[node] |= family[parent]
    return family


def key_positions(row: ForwardRow) -> Ints:
    """Position of each place of the row's sequence, ``[row.stop]``; a node's is its parent's plus one."""
    positions = np.arange(row.stop, dtype=np.int64)
    if row.branches:
        for place, parent in enumerate(row.parents, row.tree_start):
            positions[place] = row.tree_start if parent < 0 else positions[row.tree_start + parent] + 1
    return positions
