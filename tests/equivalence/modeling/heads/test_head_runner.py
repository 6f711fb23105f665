"""Heads over pages compute what their modules do; on the compiled path a token's bits never depend on the pass."""

import copy
import random

import pytest
import torch

from paceline.kvcache.page_pool import PagePool, PageTable
from paceline.modeling.feature_store import FeatureStore
from paceline.modeling.forward_row import ForwardRow
from paceline.modeling.head_memory import HeadMemory
from paceline.modeling.head_runner import HeadRow, HeadRunner, head_store
from paceline.modeling.heads.checkpoint import load_head
from paceline.modeling.heads.compiled_head import CompiledHead
from paceline.modeling.heads.module_head import ModuleHead
from paceline.modeling.heads.target_weights import weights_of_model
from paceline.modeling.medusa_runner import MedusaRunner
from tiny_heads import DRAFT_IDS, save_eagle3, tiny_head, tiny_target
from tiny_models import VOCAB_SIZE

SIZE, LENGTH = 64, 24
LAYERED = ("eagle", "eagle-bias", "mtp", "mtp-parallel")
PARENTS = (-1, -1, 0, 0, 1, 2, 2, 5)
PATHS = [(0, 2, 5, 7), (0, 2, 6), (0, 3), (1, 4)]
TOLERANCE = {torch.float32: 2e-5, torch.bfloat16: 0.04}


def runner_of(head, *, modules=False):
    pool = PagePool(400, 1)
    features = FeatureStore(400, SIZE, dtype=torch.float32, device=torch.device("cpu"))
    runner = HeadRunner(copy.deepcopy(head), HeadMemory(pool, head_store(head, pool), features))
    if modules:
        runner._network = ModuleHead(copy.deepcopy(head))
    return runner


class Text:
    """A random text with a random feature for each token, computed by a runner piece by piece."""

    def __init__(self, runner, seed, *, depth=1, dtype=torch.float32):
        generator = torch.Generator().manual_seed(seed)
        self.runner, self.depth = runner, depth
        self.token_ids = torch.randint(VOCAB_SIZE, (LENGTH,), generator=generator).tolist()
        self.features = torch.randn(LENGTH, SIZE, generator=generator).to(dtype)
        self.table = PageTable(runner.memory.pool, LENGTH + 16)
        self.start = 0
        self.hidden, self.logits = [], []

    def row(self, count):
        self.table.extend_to(self.start + count)
        piece = slice(self.start, self.start + count)
        return HeadRow(ForwardRow(self.token_ids[piece], self.start, self.table, count), self.features[piece])

    def keep(self, count, hidden, logits):
        self.hidden.append(hidden)
        self.logits.append(logits)
        self.start += count

    def compute(self, *sizes):
        for size in sizes:
            output = self.runner.forward([self.row(size)], self.depth)
            self.keep(size, output.hidden, output.logits)
        return torch.cat(self.hidden), torch.cat(self.logits)


def close(found, expected, tolerance):
    """Within ``tolerance`` of the largest number."""
    return (
        float((found.float() - expected.float()).abs().max().detach() / expected.float().abs().max().detach())
        < tolerance
    )


def by_modules(head, text):
    """Hidden states and logits of the whole text from the trainable form, with plain causal attention."""
    with torch.inference_mode():
        embeddings = head.embed(torch.tensor([text.token_ids]))
        hidden = head(embeddings, text.features.to(embeddings.dtype).unsqueeze(0), depth=text.depth)
        return hidden[0], head.draft_logits(hidden, text.depth)[0].float()


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=["float32", "bfloat16"])
@pytest.mark.parametrize("variant", ["llama", "qwen2", "qwen3", "mistral", "llama-biases", "llama-yarn"])
@pytest.mark.parametrize("kind", LAYERED)
def test_compiled_and_paged_forms_equal_the_trainable_one(kind, variant, dtype):
    """At both depths: what was trained is what is served."""
    head = tiny_head(kind, tiny_target(variant, dtype=dtype))
    for modules in (False, True):
        runner = runner_of(head, modules=modules)
        assert isinstance(runner._network, ModuleHead if modules else CompiledHead)
        for depth in (1, 2):
            text = Text(runner, depth, depth=depth)
            hidden, logits = text.compute(LENGTH)
            expected_hidden, expected_logits = by_modules(head, text)

            assert close(hidden, expected_hidden, TOLERANCE[dtype])
            assert close(logits, expected_logits, TOLERANCE[dtype])
            assert logits.dtype is torch.float32


def test_eagle3_over_pages_equals_the_trainable_form(tmp_path):
    """It runs through its modules, with projections twice as wide."""
    model = tiny_target()
    head = load_head(save_eagle3(tmp_path, model), weights_of_model(model))
    text = Text(runner_of(head), 1)
    hidden, logits = text.compute(10, 1, 13)
    expected_hidden, expected_logits = by_modules(head, text)

    assert torch.allclose(hidden, expected_hidden, atol=1e-4)
    assert torch.allclose(logits, expected_logits, atol=1e-4)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=["float32", "bfloat16"])
@pytest.mark.parametrize("kind", LAYERED)
def test_however_a_text_is_cut(kind, dtype):
    """One pass, many passes, single tokens: the same bits."""
    head = tiny_head(kind, tiny_target(dtype=dtype))
    hidden, logits = Text(runner_of(head), 1).compute(LENGTH)
    for sizes in ((1,) * LENGTH, (7, 1, 1, 15), (20, 4)):
        again = Text(runner_of(head), 1).compute(*sizes)

        assert torch.equal(again[0], hidden)
        assert torch.equal(again[1], logits)


@pytest.mark.parametrize("kind", LAYERED)
def test_beside_others_on_whatever_pages(kind):
    """Batches of several texts at different places change nothing for any of them."""
    head = tiny_head(kind, tiny_target(dtype=torch.bfloat16))
    expected = [Text(runner_of(head), seed).compute(LENGTH) for seed in range(3)]
    runner, rng = runner_of(head), random.Random(5)
    texts = [Text(runner, seed) for seed in range(3)]
    while waiting := [text for text in texts if text.start < LENGTH]:
        counts = [min(LENGTH - text.start, rng.choice((1, 2, 5))) for text in waiting]
        output = runner.forward([text.row(count) for text, count in zip(waiting, counts, strict=True)])
        pieces = zip(output.hidden.split(counts), output.logits.split(counts), strict=True)
        for text, count, (hidden, logits) in zip(waiting, counts, pieces, strict=True):
            text.keep(count, hidden, logits)

    for text, (hidden, logits) in zip(texts, expected, strict=True):
        assert torch.equal(torch.cat(text.hidden), hidden)
        assert torch.equal(torch.cat(text.logits), logits)


@pytest.mark.parametrize("modules", [False, True], ids=["compiled", "modules"])
@pytest.mark.parametrize("kind", LAYERED)
def test_a_tree_equals_its_chains(kind, modules):
    """Each node sees the text and its own ancestors, at the position that its depth gives."""
    head = tiny_head(kind, tiny_target())
    generator = torch.Generator().manual_seed(3)
    ids = torch.randint(VOCAB_SIZE, (len(PARENTS),), generator=generator).tolist()
    features = torch.randn(len(PARENTS), SIZE, generator=generator)

    def drafts(nodes, parents):
        text = Text(runner_of(head, modules=modules), 1)
        text.compute(LENGTH)
        text.table.extend_to(LENGTH + len(nodes))
        row = ForwardRow([ids[node] for node in nodes], LENGTH, text.table, len(nodes), parents)
        return text.runner.forward([HeadRow(row, features[list(nodes)])])

    tree = drafts(range(len(PARENTS)), PARENTS)
    for path in PATHS:
        chain = drafts(path, ())
        nodes = list(path)
        if modules:
            assert torch.allclose(tree.hidden[nodes], chain.hidden, atol=1e-4)
        else:
            assert torch.equal(tree.hidden[nodes], chain.hidden)
            assert torch.equal(tree.logits[nodes], chain.logits)


def test_a_tree_level_by_level_equals_the_tree_at_once():
    """A drafter asks for one level at a time: the first nodes then have K/V from earlier passes."""
    head = tiny_head("eagle", tiny_target())
    ids, features = list(range(10, 18)), torch.randn(8, SIZE)
    levels = [(0, 2), (2, 5), (5, 7), (7, 8)]

    def tree(borders):
        text = Text(runner_of(head), 1)
        text.compute(LENGTH)
        hidden = []
        for first, last in borders:
            text.table.extend_to(LENGTH + last)
            row = ForwardRow(ids[first:last], LENGTH + first, text.table, last - first, PARENTS[:last])
            hidden.append(text.runner.forward([HeadRow(row, features[first:last])]).hidden)
        return torch.cat(hidden)

    assert torch.equal(tree(levels), tree([(0, 8)]))


def test_modules_of_mtp_keep_their_own_keys():
    """Passes at one depth leave the K/V of the other modules alone; deeper ones use the last module."""
    head = tiny_head("mtp", tiny_target())
    alone = Text(runner_of(head), 1, depth=2).compute(LENGTH)
    runner = runner_of(head)
    second = Text(runner, 1, depth=2)
    second.compute(10)
    runner.forward([HeadRow(ForwardRow(second.token_ids[:10], 0, second.table, 0), torch.randn(10, SIZE))], 1)
    hidden, _ = second.compute(14)

    assert torch.equal(hidden, alone[0])
    assert torch.equal(Text(runner_of(head), 1, depth=5).compute(LENGTH)[0], alone[0])


def test_only_the_wanted_logits_are_computed_and_widened():
    """Logits of the last ``num_logits`` tokens of a row; -inf outside the draft vocabulary."""
    runner = runner_of(tiny_head("eagle", tiny_target()))
    text = Text(runner, 1)
    text.table.extend_to(LENGTH)
    output = runner.forward([HeadRow(ForwardRow(text.token_ids, 0, text.table, 2), text.features)])
    wide = runner.widen(output.logits)

    assert output.logits.shape == (2, len(DRAFT_IDS))
    assert output.hidden.shape == (LENGTH, SIZE)
    assert wide.shape == (2, VOCAB_SIZE)
    assert torch.equal(wide[:, list(DRAFT_IDS)], output.logits)
    assert int(wide.isinf().sum()) == 2 * (VOCAB_SIZE - len(DRAFT_IDS))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=["float32", "bfloat16"])
@pytest.mark.parametrize("kind", ["medusa", "medusa-reduced"])
def test_medusa_heads(kind, dtype):
    """The packed form equals the modules; a feature's bits do not depend on those beside it."""
    head = tiny_head(kind, tiny_target(dtype=dtype))
    features = torch.randn(9, SIZE)
    expected = head(features.to(dtype)).float()
    runner = MedusaRunner(copy.deepcopy(head))
    logits = runner.forward(features)

    assert runner._packed is not None
    assert logits.shape == (head.spec.num_modules, 9, head.spec.draft_vocab_size)
    assert close(logits, expected, TOLERANCE[dtype])
    assert torch.equal(runner.forward(features[4:5])[:, 0], logits[:, 4])


@pytest.mark.parametrize("modules", [False, True], ids=["compiled", "modules"])
@pytest.mark.parametrize("kind", LAYERED)
def test_places_before_the_first_feature_are_no_part_of_the_context(kind, modules):
    """Token 0 has no feature: with ``first`` at 1 nobody sees its slot, and positions stay those of the text."""
    head = tiny_head(kind, tiny_target())
    runner = runner_of(head, modules=modules)
    text = Text(runner, 1)
    text.table.extend_to(LENGTH)
    runner.memory.store.poison([int(text.table.slot_array(LENGTH)[0])])
    row = ForwardRow(text.token_ids[1:], 1, text.table, LENGTH - 1, first=1)
    output = runner.forward([HeadRow(row, text.features[1:])])
    with torch.inference_mode():
        embeddings = head.embed(torch.tensor([text.token_ids[1:]]))
        positions = torch.arange(1, LENGTH).unsqueeze(0)
        expected = head(embeddings, text.features[1:].unsqueeze(0), positions=positions)[0]

    assert close(output.hidden, expected, TOLERANCE[torch.float32])
