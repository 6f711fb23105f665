"""Attention over pages, compiled and in torch, is attention by definition."""

from types import SimpleNamespace

import numpy as np
import pytest
import torch

from paceline.kvcache.page_pool import PagePool, PageTable
from paceline.modeling import attention
from paceline.modeling.attention import attend
from paceline.modeling.forward_row import ForwardRow
from paceline.modeling.kv_store import KVStore
from paceline.modeling.masks import visible_keys
from paceline.modeling.step_meta import StepMeta

HEADS, KV_HEADS = 6, 2
CPU = torch.device("cpu")
TREE = (-1, -1, 0, 0, 1, 2, 5)
# (start, tokens, parents): prefill, decodes, drafts, trees; around borders of 64 keys, where blocks end.
SHAPES = [
    (0, 7, ()),
    (9, 1, ()),
    (5, 3, (-1, 0)),
    (20, 8, TREE),
    (62, 8, TREE),
    (130, 1, ()),
    (60, 70, ()),
]


@pytest.fixture(params=["compiled", "torch"])
def form(request, monkeypatch):
    if request.param == "torch":
        monkeypatch.setattr(attention, "decoder_kernels", lambda: None)
    return request.param


class Pass:
    """Rows over one store, the K/V of their context, and random queries, keys and values for their tokens."""

    def __init__(self, shapes, *, dim=8, dtype=torch.float32, page_size=4, padding=0, seed=0):
        torch.manual_seed(seed)
        pool = PagePool(1024 // page_size, page_size)
        self.store = KVStore(1, 1024, num_kv_heads=KV_HEADS, head_dim=dim, dtype=dtype, device=CPU)
        self.store.poison(range(1024))
        self.rows, self.past = [], []
        for start, count, parents in shapes:
            table = PageTable(pool, start + count)
            table.extend_to(start + count)
            self.rows.append(ForwardRow([0] * count, start, table, 0, parents))
            keys, values = torch.randn(2, start, KV_HEADS, dim).to(dtype)
            self.store.write(0, torch.tensor(table.slots(0, start), dtype=torch.int64), keys, values)
            self.past.append((keys, values))
        self.num_tokens = sum(count for _, count, _ in shapes)
        size = self.num_tokens + padding
        self.query = torch.randn(1, HEADS, size, dim).to(dtype)
        self.key, self.value = torch.randn(2, 1, KV_HEADS, size, dim).to(dtype)

    def run(self, *, window=None, softcap=None):
        output, weights = attend(
            SimpleNamespace(layer_idx=0),
            self.query,
            self.key,
            self.value,
            None,
            step=StepMeta(self.rows, self.store, device=CPU),
            scaling=0.4,
            sliding_window=window,
            softcap=softcap,
        )
        assert weights is None
        return output[0]

    def expected(self, *, window, softcap):
        """One query and head at a time, in float64. ``[tokens, HEADS, dim]``."""
        out, token = [], 0
        for row, (past_keys, past_values) in zip(self.rows, self.past, strict=True):
            new = slice(token, token + len(row.token_ids))
            keys = torch.cat([past_keys, self.key[0, :, new].transpose(0, 1)]).double()
            values = torch.cat([past_values, self.value[0, :, new].transpose(0, 1)]).double()
            seen = visible_keys(row, np.arange(len(row.token_ids)), row.stop, window=window)
            for line in seen:
                heads = [
                    naive(self.query[0, head, token].double(), keys[line], values[line], head, softcap)
                    for head in range(HEADS)
                ]
                out.append(torch.stack(heads))
                token += 1
        return torch.stack(out)


def naive(query, keys, values, head, softcap):
    kv_head = head * KV_HEADS // HEADS
    scores = keys[:, kv_head] @ query * 0.4
    if softcap is not None:
        scores = softcap * torch.tanh(scores / softcap)
    return torch.softmax(scores, 0) @ values[:, kv_head]


@pytest.mark.parametrize("softcap", [None, 1.5])
@pytest.mark.parametrize("window", [None, 3, 65])
@pytest.mark.parametrize("dim", [8, 24, 80])
def test_every_token_reads_its_own_sequence(form, dim, window, softcap):
    """Prefill, decodes, drafts, trees and padded tokens together; free slots hold NaN, and nobody reads them."""
    batch = Pass(SHAPES, dim=dim, padding=2)

    output = batch.run(window=window, softcap=softcap)

    assert not output[batch.num_tokens :].any()
    expected = batch.expected(window=window, softcap=softcap)
    assert (output[: batch.num_tokens] - expected).abs().max() < 1e-5


def test_half_precision_is_close(form):
    """Bfloat16 K/V and queries give the definition's result within their rounding."""
    batch = Pass(SHAPES, dim=64, dtype=torch.bfloat16)

    assert (batch.run() - batch.expected(window=None, softcap=None)).abs().max() < 0.03


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("window", [None, 40, 90])
def test_a_query_has_the_same_bits_in_any_company(dtype, window):
    """Compiled: rows together, one by one, and token by token give equal bits, trees too, on one and two threads."""
    batch = Pass(SHAPES, dim=64, dtype=dtype)
    together = batch.run(window=window)
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        assert torch.equal(batch.run(window=window), together)
    finally:
        torch.set_num_threads(before)
    query, key, value, rows, offset = batch.query, batch.key, batch.value, batch.rows, 0
    for row in rows:
        count = len(row.token_ids)
        pieces = [(0, count)] if row.parents else [(0, count), *((i, i + 1) for i in range(count))]
        for first, last in pieces:
            part = slice(offset + first, offset + last)
            batch.rows = [ForwardRow([0] * (last - first), row.start + first, row.table, 0, row.parents)]
            batch.query, batch.key, batch.value = query[:, :, part], key[:, :, part], value[:, :, part]
            assert torch.equal(batch.run(window=window), together[part]), (row.start, first)
        offset += count


@pytest.mark.parametrize("start", [5, 61, 64, 126])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_path_has_the_bits_of_its_chain(dtype, start):
    """Compiled: nodes of a tree get what they would get if their path were the whole text."""
    batch = Pass([(start, 8, TREE), (start, 5, ())], dim=64, dtype=dtype)
    path = [0, 2, 5, 6]  # from the root down
    places = [0, *(1 + node for node in path)]  # in the flat batch, the token before the tree first
    for tensor in (batch.query, batch.key, batch.value):
        tensor[:, :, 8:13] = tensor[:, :, places]
    for of_tree, of_chain in zip(*(row.table.slots(0, start) for row in batch.rows), strict=True):
        batch.store.keys[0][of_chain] = batch.store.keys[0][of_tree]
        batch.store.values[0][of_chain] = batch.store.values[0][of_tree]

    output = batch.run()

    assert torch.equal(output[8:13], output[places])


def test_a_node_is_not_seen_by_those_that_do_not_descend_from_it(form):
    """Not even NaN in its K/V reaches them."""
    batch = Pass([(70, 8, TREE)], dim=16)
    before = batch.run()
    batch.key[:, :, 1 + 2] = 9.0
    batch.value[:, :, 1 + 2] = float("nan") if form == "compiled" else 9.0  # torch multiplies it by zero

    after = batch.run()

    changed = [token for token in range(8) if not torch.equal(after[token], before[token])]
    assert changed == [1 + 2, 1 + 5, 1 + 6]
