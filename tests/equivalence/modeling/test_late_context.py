"""A row whose context starts late reads nothing of what lies before it, and stands where the text has it."""

import random

import pytest
import torch

from paceline.kvcache.page_pool import PagePool, PageTable
from paceline.modeling import attention, loader, packed_linear
from paceline.modeling.forward_row import ForwardRow
from paceline.modeling.kv_store import KVStore
from paceline.modeling.loader import load_model
from paceline.modeling.step_meta import StepMeta
from tiny_models import VOCAB_SIZE, save_tiny_model

CPU = torch.device("cpu")
TREE = (-1, -1, 0, 0, 1, 2, 5)
FIRST = 37  # inside a page and inside a block of keys
LENGTH = 75  # of the context that is seen: the tree lies across a border of blocks
NUM_SLOTS = 512


@pytest.fixture(scope="module", params=["llama", "mistral", "gemma2"])
def folder(request, tmp_path_factory):
    """A model whose layers see everything, one with windows, and one with windows and bounded scores."""
    return save_tiny_model(tmp_path_factory.mktemp(request.param), request.param, seed=4)


@pytest.fixture(params=["compiled", "torch"])
def kernels(request, monkeypatch):
    """With the compiled kernels, and as on a machine without a compiler."""
    if request.param == "torch":
        for module in (attention, loader, packed_linear):
            monkeypatch.setattr(module, "decoder_kernels", lambda: None)


class Text:
    """Tokens of one sequence behind ``first`` places that it does not see; their K/V are NaN."""

    def __init__(self, loaded, *, first, page_size):
        self.first = first
        self.network = loaded.network
        pool = PagePool(NUM_SLOTS // page_size, page_size)
        self.store = KVStore(
            loaded.num_layers,
            NUM_SLOTS,
            num_kv_heads=loaded.num_kv_heads,
            head_dim=loaded.head_dim,
            dtype=loaded.dtype,
            device=CPU,
        )
        self.store.poison(range(NUM_SLOTS))
        self.table = PageTable(pool, first + 200)
        self.length = first

    @torch.inference_mode()
    def run(self, token_ids, parents=(), *, shift=0):
        """Logits of one pass over the next tokens, at positions that are higher by ``shift`` than their places."""
        stop = self.length + len(token_ids)
        self.table.extend_to(stop)
        row = ForwardRow(token_ids, self.length, self.table, len(token_ids), parents, self.first)
        self.length = stop
        step = StepMeta([row], self.store, device=CPU)
        step.positions = step.positions + shift
        return self.network.run(step).logits


@pytest.mark.parametrize("page_size", [1, 16])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("parents", [(), (-1, 0, 1, 2, 3, 4, 5), TREE], ids=["text", "chain", "tree"])
def test_places_before_the_first_might_as_well_not_exist(folder, kernels, page_size, dtype, parents):
    """Bit for bit the logits of a table that never had those places, at the positions of the one that has them."""
    rng = random.Random(page_size)
    loaded = load_model(folder, dtype=dtype)
    late, short = (Text(loaded, first=first, page_size=page_size) for first in (FIRST, 0))
    context = [rng.randrange(3, VOCAB_SIZE) for _ in range(LENGTH)]
    newest = [rng.randrange(3, VOCAB_SIZE) for _ in range(1 + len(TREE))]

    for piece, shape in ((context[:40], ()), (context[40:41], ()), (context[41:], ()), (newest, parents)):
        ours, theirs = late.run(piece, shape), short.run(piece, shape, shift=FIRST)
        assert not ours.isnan().any()
        assert torch.equal(ours, theirs)


def test_positions_and_slots_are_those_of_the_whole_text():
    """What is left out moves nothing: a late row writes where any other would, at the same positions."""
    pool = PagePool(64, 4)
    table = PageTable(pool, 20)
    table.extend_to(20)
    store = KVStore(1, 256, num_kv_heads=1, head_dim=2, dtype=torch.float32, device=CPU)
    whole, late = (
        StepMeta([ForwardRow([1, 2, 3, 4], 9, table, 4, (-1, -1, 0), first)], store, device=CPU) for first in (0, 6)
    )

    assert late.positions.tolist() == whole.positions.tolist() == [9, 10, 10, 11]
    assert late.write_slots.tolist() == whole.write_slots.tolist() == table.slots(9, 13)
    assert (whole.sequences[0].start, late.sequences[0].start) == (9, 3)
