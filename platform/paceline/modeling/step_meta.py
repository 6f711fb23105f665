"""One pass over a flat batch: its tokens, where its K/V go and what each of its queries reads."""

import ctypes
from collections.abc import Sequence
from dataclasses import replace
from functools import cached_property

import numpy as np
import torch

from paceline.kernels.decoder_layers import AttentionSequence
from paceline.modeling.buckets import AttentionBucket, Member, make_buckets
from paceline.modeling.forward_row import ForwardRow
from paceline.modeling.host_tensors import to_device
from paceline.modeling.kv_store import KVStore
from paceline.modeling.masks import key_positions


class StepMeta:
    """Index arrays of one pass, each built once, on the host, when it is first asked for."""

    def __init__(self, rows: Sequence[ForwardRow], store: KVStore, *, device: torch.device) -> None:
        self.store = store
        self._device = device
        self._members: list[Member] = []
        self.num_tokens = 0
        for row in rows:
            # Without the places that no query sees, so that nothing but positions knows of them.
            seen = replace(row, start=row.start - row.first, first=0) if row.first else row
            self._members.append(Member(seen, row.table.slot_array(row.stop)[row.first :], self.num_tokens))
            self.num_tokens += len(row.token_ids)
        self._first_positions = [row.first for row in rows]
        self.host_write_slots = np.concatenate([slots[row.start :] for row, slots, _ in self._members])  # int32

    @cached_property
    def token_ids(self) -> torch.Tensor:
        """``[num_tokens]`` int64."""
        return self._send(np.concatenate([row.token_ids for row, _, _ in self._members]))

    @cached_property
    def positions(self) -> torch.Tensor:
        """``[num_tokens]`` int64: a token's place in its sequence, or what the depth of a node gives."""
        firsts = zip(self._members, self._first_positions, strict=True)
        return self._send(np.concatenate([first + key_positions(row)[row.start :] for (row, _, _), first in firsts]))

    @cached_property
    def wanted(self) -> torch.Tensor:
        """``[sum of num_logits]`` int64: rows of the flat batch whose logits are wanted."""
        ends = [(offset + len(row.token_ids), row.num_logits) for row, _, offset in self._members]
        return self._send(np.concatenate([np.arange(end - count, end) for end, count in ends]))

    @cached_property
    def write_slots(self) -> torch.Tensor:
        """``[num_tokens]`` int64: where each token's K/V go."""
        return self._send(self.host_write_slots)

    @cached_property
    def sequences(self) -> "ctypes.Array[AttentionSequence]":
        """What the compiled attention reads, one record per row."""
        records = (AttentionSequence * len(self._members))()
        # The records hold addresses only; the arrays must live as long.
        self._parents = [np.array(row.parents if row.branches else (), np.int32) for row, _, _ in self._members]
        for record, (row, slots, offset), parents in zip(records, self._members, self._parents, strict=True):
            record.slots, record.parents = slots.ctypes.data, parents.ctypes.data
            record.first_row, record.start = offset, row.start
            record.num_queries, record.num_nodes = len(row.token_ids), len(parents)
        return records

    @cached_property
    def buckets(self) -> list[AttentionBucket]:
        """What the torch attention reads."""
        return make_buckets(self._members, self.store.padding_slot, self._device)

    def _send(self, values: "np.typing.NDArray[np.integer]") -> torch.Tensor:
        return to_device(values.astype(np.int64), self._device)
