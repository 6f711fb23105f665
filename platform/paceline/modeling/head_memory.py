"""What a draft head keeps for each slot of a page pool: its own K/V, the target's features, and whether both fit."""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from paceline.kvcache.page_pool import PagePool
from paceline.modeling.feature_store import FeatureStore
from paceline.modeling.kv_store import KVStore


class HeadMemory:
    """K/V of a head, by the slots of a pool that it shares with the target, or of a pool of its own.

    The K/V in the slot of token t are computed from that token and from its feature, which lies in the slot of
    token t - 1. ``computed`` says where they are valid. Inside a target the runner invalidates what a pass of the
    target writes, so whoever holds a page finds out slot by slot what the head still has to do; a page that is
    shared, kept for a sleeping sequence or handed over brings its head's K/V along.
    """

    def __init__(self, pool: PagePool, store: KVStore, features: FeatureStore) -> None:
        self.pool = pool
        self.store = store
        self.features = features
        self.computed: npt.NDArray[np.bool_] = np.zeros(pool.num_pages * pool.page_size, np.bool_)

    def written(self, slots: npt.NDArray[np.int32]) -> None:
        """The target has computed other tokens in ``slots``: the head's K/V there are stale."""
        self.computed[slots] = False

    def freed(self, slots: npt.NDArray[np.int32]) -> None:
        """Nobody holds ``slots`` any more: whoever is given them next has computed nothing there."""
        self.computed[slots] = False

    def moved(self, moves: Sequence[tuple[int, int]]) -> None:
        """The target's K/V were copied between slots, given as (source, target): the head's go with them."""
        if not moves:
            return
        self.store.move(moves)
        sources, targets = (np.array(side) for side in zip(*moves, strict=True))
        self.computed[targets] = self.computed[sources]
