"""K and V tensors of all layers, addressed by slot."""

from collections.abc import Sequence

import torch


class KVStore:
    """One K and one V tensor per layer: ``[num_slots + 1, num_kv_heads, head_dim]``, all views of one block of memory.

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
        shape = (2 * num_layers, num_slots + 1, num_kv_heads, head_dim)
        self.padding_slot = num_slots
        self._block = torch.empty(shape, dtype=dtype, device=device)  # slots of all layers move in one operation
        self._block[:, self.padding_slot].zero_()
        self.keys = list(self._block[:num_layers])
        self.values = list(self._block[num_layers:])
        self.num_moved = 0  # tokens whose K/V were copied from slot to slot

    def write(self, layer: int, slots: torch.Tensor, keys: torch.Tensor, values: torch.Tensor) -> None:
        """Store ``keys`` and ``values`` ([n, num_kv_heads, head_dim]) in ``slots`` ([n])."""
        self.keys[layer].index_copy_(0, slots, keys)
        self.values[layer].index_copy_(0, slots, values)

    def move(self, moves: Sequence[tuple[int, int]]) -> None:
        """Copy K/V of all layers from slot to slot, all sources read before any target is written."""
        if not moves:
            return
        self.num_moved += len(moves)
        sources, targets = (torch.tensor(side, device=self._block.device) for side in zip(*moves, strict=True))
        self._block.index_copy_(1, targets, self._block.index_select(1, sources))

    def poison(self, slots: Sequence[int]) -> None:
        """Fill slots that nobody holds with NaN, so that whoever still reads them shows it."""
        index = torch.as_tensor(slots, dtype=torch.int64, device=self._block.device)
        self._block.index_fill_(1, index, float("nan"))

    def read(self, layer: int, slots: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """K and V of ``slots`` ([sequences, keys]): ``[sequences, num_kv_heads, keys, head_dim]`` each."""
        return _gather(self.keys[layer], slots), _gather(self.values[layer], slots)


def _gather(tensor: torch.Tensor, slots: torch.Tensor) -> torch.Tensor:
    rows = tensor.index_select(0, slots.flatten())
    return rows.view(*slots.shape, *tensor.shape[1:]).transpose(1, 2)
