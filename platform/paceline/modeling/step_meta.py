"""Index tensors of one pass, built once and used by every layer."""

from collections import defaultdict
from collections.abc import Sequence

import torch

from paceline.modeling.forward_row import ForwardRow
from paceline.modeling.kv_store import KVStore
from paceline.modeling.masks import causal_mask

# Fewest queries of a sequence in one attention call. Matrix products with fewer rows take other
# code paths, so that a token alone and the same token among drafts would differ in the last bits.
MIN_QUERIES = 4
# Keys are read in multiples of this many slots, for the same reason; beyond `WIDE_FROM` in wider
# blocks, as matrix products split longer sums at places that depend on their length.
KEY_BLOCK = 64
WIDE_FROM = 256
WIDE_KEY_BLOCK = 256


class AttentionBucket:
    """Sequences whose padded sizes are equal: one attention call per layer serves them all.

    Queries are padded by repeating the sequence's last one, keys by the padding slot; padded
    queries' results are dropped, padded keys are masked.
    """

    def __init__(
        self, query_rows: torch.Tensor, query_index: torch.Tensor, slots: torch.Tensor, *, num_real: Sequence[int]
    ) -> None:
        self.query_rows = query_rows  # [sequences, queries] row in the flat batch
        self.slots = slots  # [sequences, keys]
        self._query_index = query_index  # [sequences, queries] place in the sequence
        real = torch.arange(query_rows.shape[1]) < torch.tensor(num_real).unsqueeze(-1)
        self.result_rows = real.flatten().nonzero().squeeze(-1).to(query_rows.device)  # [n] into sequences * queries
        self.output_rows = query_rows.flatten()[self.result_rows]  # [n] into the flat batch
        self._masks: dict[int | None, torch.Tensor] = {}

    def mask(self, window: int | None, *, copies: int, dtype: torch.dtype) -> torch.Tensor:
        """Additive mask ``[sequences, 1, copies * queries, keys]``, made once per window and pass."""
        if window not in self._masks:
            self._masks[window] = causal_mask(
                self._query_index, self.slots.shape[1], window=window, copies=copies, dtype=dtype
            )
        return self._masks[window]


class StepMeta:
    """One pass over a flat batch: where its K/V go and what each of its queries reads."""

    def __init__(self, rows: Sequence[ForwardRow], store: KVStore, *, page_size: int, device: torch.device) -> None:
        self.store = store
        slots = [slot for row in rows for slot in row.table.slots(row.start, row.start + len(row.token_ids))]
        self.num_tokens = len(slots)
        self.write_slots = torch.tensor(slots, device=device)  # [num_tokens]
        self.buckets = _buckets(rows, store.padding_slot, page_size, device)


def _buckets(
    rows: Sequence[ForwardRow], padding_slot: int, page_size: int, device: torch.device
) -> list[AttentionBucket]:
    members: defaultdict[tuple[int, int], list[tuple[int, ForwardRow]]] = defaultdict(list)
    offset = 0
    for row in rows:
        num_queries = len(row.token_ids)
        size = padded_queries(num_queries), padded_keys(row.start + num_queries)
        members[size].append((offset, row))
        offset += num_queries
    return [_bucket(group, size, padding_slot, page_size, device) for size, group in members.items()]


def _bucket(
    group: Sequence[tuple[int, ForwardRow]],
    size: tuple[int, int],
    padding_slot: int,
    page_size: int,
    device: torch.device,
) -> AttentionBucket:
    num_queries, num_keys = size
    num_real = [len(row.token_ids) for _, row in group]
    local = torch.arange(num_queries).minimum(torch.tensor(num_real).unsqueeze(-1) - 1)  # [sequences, queries]
    query_rows = local + torch.tensor([offset for offset, _ in group]).unsqueeze(-1)
    query_index = local + torch.tensor([row.start for _, row in group]).unsqueeze(-1)
    slots = _slot_matrix([row for _, row in group], num_keys, padding_slot, page_size)
    return AttentionBucket(query_rows.to(device), query_index.to(device), slots.to(device), num_real=num_real)


def _slot_matrix(rows: Sequence[ForwardRow], num_keys: int, padding_slot: int, page_size: int) -> torch.Tensor:
    """Slots ``[sequences, num_keys]`` in the order of each sequence's tokens."""
    num_pages = -(-num_keys // page_size)
    lengths = [row.start + len(row.token_ids) for row in rows]
    pages = torch.zeros(len(rows), num_pages, dtype=torch.int64)
    for index, (row, length) in enumerate(zip(rows, lengths, strict=True)):
        used = row.table.pages[: -(-length // page_size)]
        pages[index, : len(used)] = torch.tensor(used)
    place = torch.arange(num_keys)
    slots = pages[:, place // page_size] * page_size + place % page_size
    return slots.masked_fill_(place >= torch.tensor(lengths).unsqueeze(-1), padding_slot)


def padded_queries(num_queries: int) -> int:
    """Next power of two, at least `MIN_QUERIES`."""
    return max(MIN_QUERIES, 1 << (num_queries - 1).bit_length())


def padded_keys(num_keys: int) -> int:
    """Next multiple of `KEY_BLOCK`, or of `WIDE_KEY_BLOCK` beyond `WIDE_FROM`."""
    block = KEY_BLOCK if num_keys <= WIDE_FROM else WIDE_KEY_BLOCK
    return -(-num_keys // block) * block
