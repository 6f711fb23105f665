import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from paceline.kvcache.page_pool import PagePool, PageTable
from paceline.modeling.buckets import KEY_BLOCK, MIN_QUERIES, WIDE_KEY_BLOCK, padded_keys, padded_queries
from paceline.modeling.forward_row import ForwardRow
from paceline.modeling.kv_store import KVStore
from paceline.modeling.step_meta import StepMeta

CPU = torch.device("cpu")


def step_for(shapes, page_size=4):
    """A step over rows of (start, number of tokens), and the rows."""
    pool = PagePool(256, page_size)
    rows = []
    for start, count in shapes:
        table = PageTable(pool, start + count)
        table.extend_to(start + count)
        rows.append(ForwardRow(list(range(count)), start, table, 1))
    store = KVStore(1, 256 * page_size, num_kv_heads=1, head_dim=2, dtype=torch.float32, device=CPU)
    return StepMeta(rows, store, device=CPU), rows


@given(st.integers(1, 10_000))
def test_padded_sizes_hold_the_real_ones(count):
    """Padding never cuts, and wastes at most half of the queries and one block of keys."""
    assert count <= padded_queries(count) <= max(MIN_QUERIES, 2 * count - 1)
    assert count <= padded_keys(count) < count + (KEY_BLOCK if count <= 256 else WIDE_KEY_BLOCK)
    assert padded_keys(count) % KEY_BLOCK == 0


@pytest.mark.parametrize("page_size", [1, 3, 16, 100])
def test_keys_are_the_sequence_in_order_then_padding(page_size):
    """A query reads exactly its own sequence's slots, in order, whatever the page size."""
    step, (row,) = step_for([(70, 3)], page_size)

    (bucket,) = step.buckets
    slots = bucket.slots[0].tolist()
    assert slots[:73] == row.table.slots(0, 73)
    assert set(slots[73:]) == {step.store.padding_slot}


def test_sequences_of_equal_padded_size_share_a_bucket():
    """Decodes of similar length are one attention call; a prefill chunk is another."""
    step, _ = step_for([(10, 1), (30, 4), (0, 64), (100, 1)])

    assert sorted(tuple(bucket.query_rows.shape) for bucket in step.buckets) == [(1, 4), (1, 64), (2, 4)]


def test_each_token_gets_exactly_one_result():
    """Every row of the flat batch is written by one bucket; padded queries are dropped."""
    step, _ = step_for([(10, 1), (30, 3), (0, 5), (100, 6), (7, 1)])

    written = torch.cat([bucket.output_rows for bucket in step.buckets])
    assert sorted(written.tolist()) == list(range(step.num_tokens))
    for bucket in step.buckets:
        assert torch.equal(bucket.query_rows.flatten()[bucket.result_rows], bucket.output_rows)


def test_masks_are_made_once_per_window():
    """Layers of one kind share a mask; sliding and full layers do not."""
    step, _ = step_for([(10, 1)])
    (bucket,) = step.buckets
    full = bucket.mask(None, copies=3, dtype=torch.float32)

    assert bucket.mask(None, copies=3, dtype=torch.float32) is full
    assert bucket.mask(4, copies=3, dtype=torch.float32) is not full


def test_hidden_keys_get_minus_infinity():
    """Once per head of the group, with the padded keys hidden too."""
    step, _ = step_for([(2, 2)])
    (bucket,) = step.buckets

    mask = bucket.mask(None, copies=2, dtype=torch.float32)

    assert mask.shape == (1, 1, 2 * 4, KEY_BLOCK)
    assert [int((line == 0).sum()) for line in mask[0, 0]] == [3, 4, 4, 4] * 2
    assert (mask[mask != 0] == float("-inf")).all()
