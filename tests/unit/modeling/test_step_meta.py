import torch

from paceline.kvcache.page_pool import PagePool, PageTable
from paceline.modeling.forward_row import ForwardRow
from paceline.modeling.kv_store import KVStore
from paceline.modeling.step_meta import StepMeta

CPU = torch.device("cpu")


def step_for(*shapes):
    """A step over rows of (start, token ids, wanted logits, parents), and the rows."""
    pool = PagePool(64, 4)
    rows = []
    for start, token_ids, num_logits, parents in shapes:
        table = PageTable(pool, start + len(token_ids))
        table.extend_to(start + len(token_ids))
        rows.append(ForwardRow(token_ids, start, table, num_logits, parents))
    store = KVStore(1, 256, num_kv_heads=1, head_dim=2, dtype=torch.float32, device=CPU)
    return StepMeta(rows, store, device=CPU), rows


def test_tokens_lie_one_row_after_another():
    """Ids, positions, slots and wanted rows all follow the order of the rows."""
    step, rows = step_for((3, [7, 8], 1, ()), (0, [9], 0, ()), (5, [4, 5, 6], 3, ()))

    assert step.num_tokens == 6
    assert step.token_ids.tolist() == [7, 8, 9, 4, 5, 6]
    assert step.positions.tolist() == [3, 4, 0, 5, 6, 7]
    assert step.write_slots.tolist() == [slot for row in rows for slot in row.table.slots(row.start, row.stop)]
    assert step.wanted.tolist() == [1, 3, 4, 5]


def test_a_tree_has_one_slot_per_node_and_positions_by_depth():
    """Six nodes of a 2 x 2 tree take six slots; siblings share a position."""
    step, (row,) = step_for((3, [1, 2, 3, 4, 5, 6, 7], 7, (-1, -1, 0, 0, 1, 1)))

    assert step.positions.tolist() == [3, 4, 4, 5, 5, 5, 5]
    assert step.write_slots.tolist() == row.table.slots(3, 10)
    (record,) = step.sequences
    assert (record.start, record.num_queries, record.num_nodes) == (3, 7, 6)


def test_a_chain_of_drafts_is_no_tree():
    """The compiled attention reads it like any other text."""
    step, _ = step_for((3, [1, 2, 3], 3, (-1, 0)), (2, [4], 1, ()))

    assert [record.num_nodes for record in step.sequences] == [0, 0]
    assert [record.first_row for record in step.sequences] == [0, 3]
