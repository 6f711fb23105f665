"""K and V tensors of all layers, addressed by slot."""

from collections.abc import Sequence

import torch


class KVStore:
    """One K and one V tensor per layer: ``[num_slots + 1, num_kv_heads, head_dim]``.

    Which slot belongs to whom is the page pool's business. The last slot is the *padding slot*: it
    stays zero, so that reading beyond a sequence's end finds finite numbers and never another
    sequence's. The rest is not initialised: memory becomes resident as slots are first written.
    """

    def __init__(
        self,
        num_layers: int,
        num_slots: int,
        *,
        num_kv_heads: int,
        head_dim: int,
        dtype: torch.dtype,
        device: torch.device,
    ) -> None:
        shape = (num_slots + 1, num_kv_heads, head_dim)
        self.padding_slot = num_slots
        self._keys = [torch.empty(shape, dtype=dtype, device=device) for _ in range(num_layers)]
        self._values = [torch.empty(shape, dtype=dtype, device=device) for _ in range(num_layers)]
        for tensor in (*self._keys, *self._values):
            tensor[self.padding_slot].zero_()

    def write(self, layer: int, slots: torch.Tensor, keys: torch.Tensor, values: torch.Tensor) -> None:
        """Store ``keys`` and ``values`` ([n, num_kv_heads, head_dim]) in ``slots`` ([n])."""
        self._keys[layer].index_copy_(0, slots, keys)
        self._values[layer].index_copy_(0, slots, values)

    def move(self, moves: Sequence[tuple[int, int]]) -> None:
        """Copy K/V of all layers from slot to slot, all sources read before any target is written."""
        if not moves:
            return
        sources, targets = (torch.tensor(side, device=self._keys[0].device) for side in zip(*moves, strict=True))
        for tensor in (*self._keys, *self._values):
            tensor.index_copy_(0, targets, tensor.index_select(0, sources))

    def read(self, layer: int, slots: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """K and V of ``slots`` ([sequences, keys]): ``[sequences, num_kv_heads, keys, head_dim]`` each."""
        return _gather(self._keys[layer], slots), _gather(self._values[layer], slots)


def _gather(tensor: torch.Tensor, slots: torch.Tensor) -> torch.Tensor:
    rows = tensor.index_select(0, slots.flatten())
    return rows.view(*slots.shape, *tensor.shape[1:]).transpose(1, 2)
