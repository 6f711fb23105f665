"""The demo model: a token's logits have the same bits in every pass that computes them."""

import random

import pytest
import torch

from paceline.kvcache.page_pool import PageTable
from paceline.modeling.forward_row import ForwardRow
from paceline.modeling.loader import load_model
from paceline.modeling.resolve import resolve_model
from paceline.modeling.runner import ModelRunner
from paged_text import PagedText, run_at_random

pytestmark = pytest.mark.model

LENGTH, PREFILL = 150, 120
PARENTS = (-1, -1, 0, 0, 1, 2, 2, 5)
PATHS = [(0, 2, 5, 7), (0, 2, 6), (0, 3), (1, 4)]


@pytest.fixture(scope="module", params=["float32", "bfloat16"])
def runner(request):
    return ModelRunner(load_model(resolve_model("smollm2-135m"), dtype=request.param), num_pages=3000, page_size=1)


@pytest.fixture(params=[1, 2])
def threads(request):
    before = torch.get_num_threads()
    torch.set_num_threads(request.param)
    yield request.param
    torch.set_num_threads(before)


def random_ids(runner, length, seed):
    rng = random.Random(seed)
    return [rng.randrange(17, runner.vocab_size) for _ in range(length)]


def compute(runner, token_ids, sizes):
    """Logits of all tokens, computed in passes of so many tokens; the last size repeats."""
    text = PagedText(runner, token_ids)
    sizes = iter([*sizes[:-1], *sizes[-1:] * len(token_ids)])
    while text.num_left:
        count = min(next(sizes), text.num_left)
        text.keep(count, runner.forward([text.row(count)]))
    text.table.free()
    return torch.cat(text.logits)


@pytest.fixture(scope="module")
def plain(runner):
    """A text, and its logits from a prefill and single decodes on one thread."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    token_ids = random_ids(runner, LENGTH, 1)
    logits = compute(runner, token_ids, [PREFILL, 1])
    torch.set_num_threads(before)
    return token_ids, logits


@pytest.mark.parametrize(
    "sizes", [(LENGTH,), (PREFILL, 8), (1, 100, 3, 40)], ids=lambda sizes: "-".join(map(str, sizes))
)
def test_however_a_text_is_cut(runner, plain, threads, sizes):
    """One prefill, chain verification, small and large chunks, borders of blocks of keys."""
    token_ids, expected = plain

    assert torch.equal(compute(runner, token_ids, sizes), expected)


def test_a_large_chunk_has_the_bits_of_small_ones(runner):
    """Chunks of hundreds of tokens take no other path through the arithmetic."""
    token_ids = random_ids(runner, 300, 2)

    assert torch.equal(compute(runner, token_ids, [300]), compute(runner, token_ids, [129, 13]))


def test_beside_others_and_on_other_pages(runner, plain, threads):
    """In mixed batches of prefill chunks, decodes and rejected drafts, on whatever pages were free."""
    token_ids, expected = plain
    rng = random.Random(threads)
    others = [PagedText(runner, random_ids(runner, length, length)) for length in (90, 33)]
    text = PagedText(runner, token_ids)
    text.keep(PREFILL, runner.forward([others[0].row(5), text.row(PREFILL)])[5:])
    run_at_random(runner, [text, *others], rng, vocab_size=runner.vocab_size)

    assert torch.equal(torch.cat(text.logits), expected)
    for used in (text, *others):
        used.table.free()


def tree_logits(runner, token_ids, drafts):
    """Logits of the last token and of each node, from one pass after a prefill."""
    start = len(token_ids) - 1
    table = PageTable(runner.pool, start + 1 + len(drafts))
    table.extend_to(start + 1 + len(drafts))
    runner.forward([ForwardRow(token_ids[:-1], 0, table, 0)])
    logits = runner.forward([ForwardRow([token_ids[-1], *drafts], start, table, 1 + len(drafts), PARENTS)])
    table.free()
    return logits


@pytest.mark.parametrize("length", [61, 97])
def test_a_path_of_a_tree_has_the_bits_of_the_plain_text(runner, threads, length):
    """Each node's logits are those of its path decoded one token at a time, across borders of blocks of keys."""
    token_ids, drafts = random_ids(runner, length, 3), random_ids(runner, len(PARENTS), 4)
    logits = tree_logits(runner, token_ids, drafts)
    for path in PATHS:
        expected = compute(runner, [*token_ids, *(drafts[node] for node in path)], [length - 1, 1])[length - 1 :]
        assert torch.equal(logits[[0, *(1 + node for node in path)]], expected)


def test_changing_a_node_changes_its_descendants_only(runner):
    """Siblings, cousins and what is above keep their bits."""
    token_ids, drafts = random_ids(runner, 70, 5), random_ids(runner, len(PARENTS), 6)
    before = tree_logits(runner, token_ids, drafts)
    after = tree_logits(runner, token_ids, [*drafts[:2], drafts[2] + 1, *drafts[3:]])

    changed = [row - 1 for row in range(len(before)) if not torch.equal(before[row], after[row])]
    assert changed == [2, 5, 6, 7]
