from types import SimpleNamespace

import pytest
import torch

from paceline.kvcache.page_pool import PagePool, PageTable
from paceline.modeling.attention import attend
from paceline.modeling.forward_row import ForwardRow
from paceline.modeling.kv_store import KVStore
from paceline.modeling.step_meta import StepMeta

HEADS, KV_HEADS, DIM = 6, 2, 8
CPU = torch.device("cpu")


def naive(query, keys, values, place, *, scaling, window, softcap):
    """One query head by head, by the definition. query [HEADS, DIM]; keys, values [n, KV_HEADS, DIM]."""
    out = torch.empty(HEADS, DIM)
    first = 0 if window is None else max(0, place - window + 1)
    for head in range(HEADS):
        kv_head = head * KV_HEADS // HEADS
        scores = keys[first : place + 1, kv_head] @ query[head] * scaling
        if softcap is not None:
            scores = softcap * torch.tanh(scores / softcap)
        out[head] = torch.softmax(scores, 0) @ values[first : place + 1, kv_head]
    return out


@pytest.mark.parametrize("softcap", [None, 1.5])
@pytest.mark.parametrize("window", [None, 3])
def test_every_token_reads_its_own_sequence(window, softcap):
    """Attention over pages is attention by definition, for prefill, decode and padded tokens together."""
    torch.manual_seed(0)
    pool = PagePool(32, 4)
    store = KVStore(1, 128, num_kv_heads=KV_HEADS, head_dim=DIM, dtype=torch.float32, device=CPU)
    shapes = [(0, 7), (9, 1), (5, 3)]
    rows, past = [], []
    for start, count in shapes:
        table = PageTable(pool, start + count)
        table.extend_to(start + count)
        rows.append(ForwardRow([0] * count, start, table, 0))
        keys, values = torch.randn(2, start, KV_HEADS, DIM)
        store.write(0, torch.tensor(table.slots(0, start), dtype=torch.int64), keys, values)
        past.append((keys, values))
    num_tokens, padding = 11, 2
    query = torch.randn(1, HEADS, num_tokens + padding, DIM)
    key, value = torch.randn(2, 1, KV_HEADS, num_tokens + padding, DIM)
    step = StepMeta(rows, store, page_size=4, device=CPU)

    output, weights = attend(
        SimpleNamespace(layer_idx=0),
        query,
        key,
        value,
        None,
        step=step,
        scaling=0.4,
        sliding_window=window,
        softcap=softcap,
    )

    assert weights is None
    assert output.shape == (1, num_tokens + padding, HEADS, DIM)
    assert not output[0, num_tokens:].any()
    token = 0
    for (start, count), (past_keys, past_values) in zip(shapes, past, strict=True):
        new = slice(token, token + count)
        keys = torch.cat([past_keys, key[0, :, new].transpose(0, 1)])
        values = torch.cat([past_values, value[0, :, new].transpose(0, 1)])
        for place in range(start, start + count):
            expected = naive(query[0, :, token], keys, values, place, scaling=0.4, window=window, softcap=softcap)
            assert torch.allclose(output[0, token], expected, atol=1e-5)
            token += 1
