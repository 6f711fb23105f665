"""Hidden states of the target, one vector a token, addressed by slot like the K/V."""

from collections.abc import Sequence

import torch

# Of features where they are kept and where they travel, so that a head drafts alike in both places.
FEATURE_DTYPE = torch.bfloat16


def feature_bytes(size: int) -> int:
    """Bytes that one token's feature of ``size`` numbers takes: in the store, and on a link."""
    return size * FEATURE_DTYPE.itemsize


class FeatureStore:
    """``[num_slots + 1, size]``; the slot of token t holds what the target computed there. The last slot only pads."""

    def __init__(self, num_slots: int, size: int, *, dtype: torch.dtype = FEATURE_DTYPE, device: torch.device) -> None:
        self.size = size
        self._vectors = torch.zeros(num_slots + 1, size, dtype=dtype, device=device)

    @property
    def device(self) -> torch.device:
        """Where the vectors lie."""
        return self._vectors.device

    def write(self, slots: torch.Tensor, vectors: torch.Tensor) -> None:
        """Store ``vectors`` ([n, size]) in ``slots`` ([n] int64)."""
        self._vectors.index_copy_(0, slots, vectors.to(self._vectors.dtype))

    def read(self, slots: torch.Tensor) -> torch.Tensor:
        """``[n, size]`` of ``slots`` ([n] int64)."""
        return self._vectors.index_select(0, slots)

    def move(self, moves: Sequence[tuple[int, int]]) -> None:
        """Copy vectors from slot to slot, all sources read before any target is written."""
        if not moves:
            return
        sources, targets = (torch.tensor(side, device=self._vectors.device) for side in zip(*moves, strict=True))
        self._vectors.index_copy_(0, targets, self._vectors.index_select(0, sources))

    def poison(self, slots: Sequence[int]) -> None:
        """Fill slots that nobody holds with NaN, so that whoever still reads them shows it."""
        index = torch.as_tensor(slots, dtype=torch.int64, device=self._vectors.device)
        self._vectors.index_fill_(0, index, float("nan"))
