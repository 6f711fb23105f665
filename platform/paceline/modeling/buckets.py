"""Sequences of one pass grouped for batched attention in torch."""

from collections import defaultdict
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import torch

from paceline.modeling.forward_row import ForwardRow
from paceline.modeling.host_tensors import to_device
from paceline.modeling.masks import visible_keys

# Fewest queries of a sequence in one attention call. Matrix products with fewer rows take other
# code paths, so that a token alone and the same token among drafts would differ in the last bits.
MIN_QUERIES = 4
# Keys are read in multiples of this many slots, for the same reason; beyond `WIDE_FROM` in wider
# blocks, as matrix products split longer sums at places that depend on their length.
KEY_BLOCK = 64
WIDE_FROM = 256
WIDE_KEY_BLOCK = 256


class Member(NamedTuple):
    """One sequence of a bucket, without the places before `ForwardRow.first`."""

    row: ForwardRow  # its ``first`` is 0, its ``start`` counts from there; the table still has all places
    slots: npt.NDArray[np.int32]  # [row.stop]
    offset: int  # of its tokens in the flat batch


class AttentionBucket:
    """Sequences whose padded sizes are equal: one attention call per layer serves them all.

    Queries are padded by repeating the sequence's last one, keys by the padding slot; padded
    queries' results are dropped, padded keys are masked. Everything is built on the host and sent to the
    device once.
    """

    def __init__(self, members: Sequence[Member], *, num_keys: int, padding_slot: int, device: torch.device) -> None:
        lengths = np.array([[len(member.row.token_ids)] for member in members])
        place = np.arange(padded_queries(int(lengths.max())))
        self._members = members
        self._queries = np.minimum(place, lengths - 1)  # [sequences, queries] into the row's tokens
        self._device = device
        self._masks: dict[int | None, torch.Tensor] = {}
        rows = self._queries + np.array([[member.offset] for member in members])
        slots = np.full((len(members), num_keys), padding_slot, np.int64)
        for index, member in enumerate(members):
            slots[index, : member.row.stop] = member.slots
        self.query_rows = to_device(rows, device)  # [sequences, queries] row in the flat batch
        self.slots = to_device(slots, device)  # [sequences, keys]
        self.result_rows = to_device(np.flatnonzero(place < lengths), device)  # [n] into sequences * queries
        self.output_rows = to_device(rows[place < lengths], device)  # [n] into the flat batch

    def mask(self, window: int | None, *, copies: int, dtype: torch.dtype) -> torch.Tensor:
        """Additive mask ``[sequences, 1, copies * queries, keys]``, made once per window and pass.

        0 where a query sees a key, -inf elsewhere.
        """
        if window not in self._masks:
            num_keys = self.slots.shape[1]
            visible = np.stack(
                [
                    visible_keys(member.row, queries, num_keys, window=window)
                    for member, queries in zip(self._members, self._queries, strict=True)
                ]
            )
            hidden = to_device(~visible, self._device)
            mask = torch.zeros(hidden.shape, dtype=dtype, device=self._device)
            mask.masked_fill_(hidden, float("-inf"))
            self._masks[window] = mask.repeat(1, copies, 1).unsqueeze(1)
        return self._masks[window]


def make_buckets(members: Sequence[Member], padding_slot: int, device: torch.device) -> list[AttentionBucket]:
    """Group the sequences of a pass by padded size."""
    by_size: defaultdict[tuple[int, int], list[Member]] = defaultdict(list)
    for member in members:
        by_size[padded_queries(len(member.row.token_ids)), padded_keys(member.row.stop)].append(member)
    return [
        AttentionBucket(group, num_keys=num_keys, padding_slot=padding_slot, device=device)
        for (_, num_keys), group in by_size.items()
    ]


def padded_queries(num_queries: int) -> int:
    """Next power of two, at least `MIN_QUERIES`."""
    return max(MIN_QUERIES, 1 << (num_queries - 1).bit_length())


def padded_keys(num_keys: int) -> int:
    """Next multiple of `KEY_BLOCK`, or of `WIDE_KEY_BLOCK` beyond `WIDE_FROM`."""
    block = KEY_BLOCK if num_keys <= WIDE_FROM else WIDE_KEY_BLOCK
    return -(-num_keys // block) * block
