"""One forward pass over tokens of many sequences."""

from collections.abc import Sequence

import torch

from paceline.kvcache.page_pool import PagePool
from paceline.modeling.forward_row import ForwardRow
from paceline.modeling.kv_store import KVStore
from paceline.modeling.loader import LoadedModel
from paceline.modeling.step_meta import StepMeta


class ModelRunner:
    """Runs a model over paged KV; prefill chunks, decodes and drafts go into one flat batch.

    The pool hands out pages, the runner fills them. Not thread-safe.
    """

    def __init__(self, loaded: LoadedModel, *, num_pages: int, page_size: int) -> None:
        self.loaded = loaded
        self.pool = PagePool(num_pages, page_size)
        self.num_forwards = 0
        self._device = torch.device(loaded.device)
        self.store = KVStore(
            loaded.num_layers,
            num_pages * page_size,
            num_kv_heads=loaded.num_kv_heads,
            head_dim=loaded.head_dim,
            dtype=loaded.dtype,
            device=self._device,
        )

    @property
    def vocab_size(self) -> int:
        """Rows of the output head."""
        return self.loaded.vocab_size

    @property
    def context_length(self) -> int:
        """Most tokens of one sequence."""
        return self.loaded.context_length

    @torch.inference_mode()
    def forward(self, rows: Sequence[ForwardRow]) -> torch.Tensor:
        """Logits ``[sum of num_logits, vocab]`` in float32, in the order of ``rows``.

        Writes the K/V of every token. Each row has at least one token, at most ``num_logits`` of them
        are wanted, and no slot may belong to two rows.
        """
        self.num_forwards += 1
        return self.loaded.network.logits(StepMeta(rows, self.store, device=self._device))

    @torch.inference_mode()
    def move(self, moves: Sequence[tuple[int, int]]) -> None:
        """Copy K/V between slots, given as (source, target); see `KVStore.move`."""
        self.store.move(moves)

    @torch.inference_mode()
    def poison(self, slots: Sequence[int]) -> None:
        """Make slots that were given back unreadable; see `KVStore.poison`."""
        self.store.poison(slots)
