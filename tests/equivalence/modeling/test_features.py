"""Features of the target: its own hidden states, the same bits in every pass, at no cost to the logits."""

import random

import pytest
import torch

from paceline.kvcache.page_pool import PageTable
from paceline.modeling import attention, loader, packed_linear
from paceline.modeling.feature_tap import make_taps
from paceline.modeling.forward_row import ForwardRow
from paceline.modeling.heads.fusion import load_fusion
from paceline.modeling.loader import load_model
from paceline.modeling.runner import ModelRunner
from paged_text import PagedText, run_at_random
from tiny_heads import save_eagle3
from tiny_models import VARIANTS, VOCAB_SIZE, save_tiny_model, stock_model

TOLERANCE = 2e-4
LAYERS = (0, 1, 2)  # the embedding, what the second of two layers reads, what the final norm reads
TREE = (-1, -1, 0, 0, 1, 2, 5)
PATH = (0, 2, 5, 6)
# One of every way through the arithmetic: compiled layers, windows, query norms, modules with bounded scores. Not
# experts, whose products depend on the tokens beside a token, in logits as in features.
FORMS = ("llama", "mistral", "qwen3", "gemma2")


@pytest.fixture(scope="module", params=VARIANTS)
def family(request, tmp_path_factory):
    """A model's folder and the folder of an EAGLE-3 head for it."""
    return saved(tmp_path_factory.mktemp(request.param), request.param)


@pytest.fixture(scope="module", params=FORMS)
def form(request, tmp_path_factory):
    return saved(tmp_path_factory.mktemp(request.param), request.param)


def saved(folder, variant):
    model = save_tiny_model(folder / "target", variant, seed=5)
    head = save_eagle3(folder / "head", stock_model(model), eagle_aux_hidden_state_layer_ids=list(LAYERS))
    return model, head


@pytest.fixture(params=["compiled", "torch"])
def kernels(request, monkeypatch):
    """With the compiled kernels, and as on a machine without a compiler."""
    if request.param == "torch":
        for module in (attention, loader, packed_linear):
            monkeypatch.setattr(module, "decoder_kernels", lambda: None)
    return request.param


def runner_of(folders, *, dtype="float32", page_size=4, taps=True):
    model, head = folders
    loaded = load_model(model, dtype=dtype)
    made = make_taps(loaded, last=True, fused=[head]) if taps else ()
    return ModelRunner(loaded, num_pages=800 // page_size, page_size=page_size, taps=made)


def random_ids(rng, length):
    return [rng.randrange(3, VOCAB_SIZE) for _ in range(length)]


def kept(runner, table, length):
    """What the runner keeps of the first ``length`` tokens, kind after kind."""
    slots = torch.tensor(table.slots(0, length))
    return [store.read(slots) for store in runner.features.values()]


def all_equal(ours, theirs):
    return len(ours) == len(theirs) > 0 and all(map(torch.equal, ours, theirs))


def test_features_are_the_hidden_states_that_transformers_gives(family, kernels):
    """After the final norm, and the inputs of layers through ``fc``; of every token, prompt or decoded."""
    rng = random.Random(1)
    runner, (model, head) = runner_of(family), family
    texts = [PagedText(runner, random_ids(rng, length)) for length in (40, 9)]
    run_at_random(runner, texts, rng, vocab_size=VOCAB_SIZE)
    stock, fusion = stock_model(model), load_fusion(head)
    caught = []
    stock.base_model.norm.register_forward_pre_hook(lambda _, args: caught.append(args[0][0]))

    for text in texts:
        with torch.inference_mode():
            states = stock.base_model(torch.tensor([text.token_ids]), output_hidden_states=True).hidden_states
        inputs = [*(state[0] for state in states[:-1]), caught.pop()]
        fused = torch.cat([inputs[layer] for layer in LAYERS], dim=1) @ fusion.weight.T
        for ours, expected in zip(kept(runner, text.table, len(text.token_ids)), (states[-1][0], fused), strict=True):
            scale = expected.abs().max()
            assert (ours.float() - expected).abs().max() < scale * (2**-8 + TOLERANCE)  # kept in bfloat16


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_a_feature_has_the_same_bits_in_every_pass(form, kernels, dtype):
    """Prefill in one piece, in pieces beside others, single decodes, rejected drafts: never another last bit."""
    rng = random.Random(2)
    runner = runner_of(form, dtype=dtype)
    token_ids = random_ids(rng, 90)
    alone = PagedText(runner, token_ids)
    alone.keep(90, runner.forward([alone.row(90)]))
    expected = kept(runner, alone.table, 90)
    for _ in range(3):
        texts = [PagedText(runner, ids) for ids in (token_ids, random_ids(rng, 60), random_ids(rng, 7))]
        run_at_random(runner, texts, rng, vocab_size=VOCAB_SIZE)
        assert all_equal(kept(runner, texts[0].table, 90), expected)
        for text in texts:
            text.table.free()


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_taps_leave_the_logits_as_they_are(form, kernels, dtype):
    """Bit for bit, also of rows that want none, one or many of their logits."""
    rng = random.Random(3)
    logits = []
    texts = [random_ids(rng, length) for length in (33, 5, 12)]
    for runner in (runner_of(form, dtype=dtype, taps=taps) for taps in (False, True)):
        rows = []
        for token_ids, num_logits in zip(texts, (0, 1, 12), strict=True):
            table = PageTable(runner.pool, len(token_ids))
            table.extend_to(len(token_ids))
            rows.append(ForwardRow(token_ids, 0, table, num_logits))
        logits.append(runner.forward(rows))

    assert torch.equal(*logits)
    assert logits[0].shape == (13, VOCAB_SIZE)


@pytest.mark.parametrize("page_size", [1, 4])
def test_accepted_drafts_keep_the_features_of_the_plain_text(form, kernels, page_size):
    """Where K/V of a tree's path go, its features go: whether pages change places or slots are copied."""
    rng = random.Random(page_size)
    runner = runner_of(form, page_size=page_size)
    context, drafts = random_ids(rng, 30), random_ids(rng, len(TREE))
    tree = PagedText(runner, context)
    tree.keep(29, runner.forward([tree.row(29)]))
    tree.table.extend_to(30 + len(TREE))
    runner.forward([ForwardRow([context[-1], *drafts], 29, tree.table, 0, TREE)])
    runner.move(tree.table.keep_path(30, [30 + node for node in PATH]))
    plain = PagedText(runner, [*context, *(drafts[node] for node in PATH)])
    plain.keep(34, runner.forward([plain.row(34)]))

    if kernels == "compiled":
        assert all_equal(kept(runner, tree.table, 34), kept(runner, plain.table, 34))
    for ours, theirs in zip(kept(runner, tree.table, 34), kept(runner, plain.table, 34), strict=True):
        assert torch.allclose(ours.float(), theirs.float(), atol=0.05, rtol=0.02)


def test_poison_covers_features(form):
    """Reading what nobody holds any more shows at once; what others hold stays."""
    runner = runner_of(form)
    runner.poison_freed()
    rng = random.Random(4)
    gone, stays = (PagedText(runner, random_ids(rng, 8)) for _ in range(2))
    for text in (gone, stays):
        text.keep(8, runner.forward([text.row(8)]))
    slots = torch.tensor(gone.table.slots(0, 8))
    gone.table.free()
    runner.pool.report_freed()

    assert all(store.read(slots).isnan().all() for store in runner.features.values())
    assert not any(features.isnan().any() for features in kept(runner, stays.table, 8))
