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
        self.keys = [torch.empty(shape, dtype=dtype, device=device) for _ in range(num_layers)]
        self.values = [torch.empty(shape, dtype=dtype, device=device) for _ in range(num_layers)]
        self.num_moved = 0  # tokens whose K/V were copied from slot to slot
        for tensor in (*self.keys, *self.values):
            tensor[self.padding_slot].zero_()

    def write(self, layer: int, slots: torch.Tensor, keys: torch.Tensor, values: torch.Tensor) -> None:
        """Store ``keys`` and ``values`` ([n, num_kv_heads, head_dim]) in ``slots`` ([n])."""
        self.keys[layer].index_copy_(0, slots, keys)
        self.values[layer].index_copy_(0, slots, values)

    def move(self, moves: Sequence[tuple[int, int]]) -> None:
        """Copy K/V of all layers from slot to slot, all sources read before any target is written."""
        if not moves:
            return
        self.num_moved += len(moves)
        sources, targets = (torch.tensor(side, device=self.keys[0].device) for side in zip(*moves, strict=True))
        for tensor in (*self.keys, *self.values):
            tensor.index_copy_(0, targets, tensor.index_select(0, sources))

    def poison(self, slots: Sequence[int]) -> None:
        """Fill slots that nobody holds with NaN, so that whoever still reads them shows it."""
        index = torch.as_tensor(slots, dtype=torch.int64, device=self.keys[0].device)
        for tensor in (*self.keys, *self.values):
            tensor.index_fill_(0, index, float("nan"))

    def read(self, layer: int, slots: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """K and V of ``slots`` ([sequences, keys]): ``[sequences, num_kv_heads, keys, head_dim]`` each."""
        return _gather(self.keys[layer], slots), _gather(self.values[layer], slots)


def _gather(tensor: torch.Tensor, slots: torch.Tensor) -> torch.Tensor:
    rows = tensor.index_select(0, slots.flatten())
    return rows.view(*slots.shape, *tensor.shape[1:]).transpose(1, 2)
