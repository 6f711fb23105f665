"""One forward pass over tokens of many sequences."""

from collections.abc import Sequence

import torch

from paceline.core.model_identity import FeatureFacts
from paceline.kvcache.page_pool import PagePool, SlotArray
from paceline.modeling.feature_store import FeatureStore
from paceline.modeling.feature_tap import FeatureTap, all_states
from paceline.modeling.forward_row import ForwardRow
from paceline.modeling.head_memory import HeadMemory
from paceline.modeling.kv_store import KVStore
from paceline.modeling.loader import LoadedModel
from paceline.modeling.step_meta import StepMeta


class ModelRunner:
    """Runs a model over paged KV; prefill chunks, decodes and drafts go into one flat batch.

    The pool hands out pages, the runner fills them. Not thread-safe.

    What ``taps`` make of each token of a pass lies in ``features``, in that token's slot. Heads that draft from them
    in this process keep their own K/V by the same slots; `attach` keeps those in step.
    """

    def __init__(self, loaded: LoadedModel, *, num_pages: int, page_size: int, taps: Sequence[FeatureTap] = ()) -> None:
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
        self._taps = taps
        self._states = all_states(taps)
        self.features: dict[FeatureFacts, FeatureStore] = {
            tap.facts: FeatureStore(num_pages * page_size, tap.facts.size, device=self._device) for tap in taps
        }
        self._memories: list[HeadMemory] = []
        self._poisons = False

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
        step = StepMeta(rows, self.store, device=self._device)
        for memory in self._memories:
            memory.written(step.host_write_slots)
        computed = self.loaded.network.run(step, self._states)
        for tap in self._taps:
            self.features[tap.facts].write(step.write_slots, tap.vectors(computed))
        return computed.logits

    @torch.inference_mode()
    def move(self, moves: Sequence[tuple[int, int]]) -> None:
        """Copy K/V and features between slots, given as (source, target); see `KVStore.move`."""
        self.store.move(moves)
        for features in self.features.values():
            features.move(moves)
        for memory in self._memories:
            memory.moved(moves)

    def attach(self, memory: HeadMemory) -> None:
        """Keep ``memory``, which must be over this runner's pool, in step with what the slots hold."""
        self._memories.append(memory)
        self.pool.on_free = self._freed

    def poison_freed(self) -> None:
        """From now on make slots that are given back unreadable."""
        self._poisons = True
        self.pool.on_free = self._freed

    @torch.inference_mode()
    def poison(self, slots: Sequence[int]) -> None:
        """Make slots that were given back unreadable; see `KVStore.poison`."""
        for store in (self.store, *(memory.store for memory in self._memories)):
            store.poison(slots)
        for features in self.features.values():
            features.poison(slots)

    def _freed(self, slots: SlotArray) -> None:
        for memory in self._memories:
            memory.freed(slots)
        if self._poisons:
            self.poison(slots.tolist())
