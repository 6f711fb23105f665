"""Every tested family gives the logits of its own stock forward pass, however the text is cut up."""

import random

import pytest
import torch

from paceline.modeling import attention, loader, packed_linear
from paceline.modeling.families import TESTED_FAMILIES
from paceline.modeling.forward_row import ForwardRow
from paceline.modeling.loader import load_model
from paceline.modeling.runner import ModelRunner
from paged_text import PagedText, run_at_random
from tiny_models import VARIANTS, VOCAB_SIZE, save_tiny_model, stock_logits, stock_model

TOLERANCE = 1e-4


@pytest.fixture(scope="module", params=VARIANTS)
def family(request, tmp_path_factory):
    """(folder, stock model) of one variant."""
    folder = save_tiny_model(tmp_path_factory.mktemp(request.param), request.param, seed=3)
    return folder, stock_model(folder)


@pytest.fixture(params=["compiled", "torch"])
def kernels(request, monkeypatch):
    """With the compiled kernels, and as on a machine without a compiler."""
    if request.param == "torch":
        for module in (attention, loader, packed_linear):
            monkeypatch.setattr(module, "decoder_kernels", lambda: None)


def texts(rng, *lengths):
    return [[rng.randrange(3, VOCAB_SIZE) for _ in range(length)] for length in lengths]


def worst_difference(paged, stock):
    return max((torch.cat(text.logits) - stock_logits(stock, text.token_ids)).abs().max().item() for text in paged)


def test_every_tested_family_is_compared():
    """No family is called tested without a variant here."""
    assert {model_type for model_type, _ in VARIANTS.values()} == set(TESTED_FAMILIES)


@pytest.mark.parametrize("page_size", [1, 16])
def test_mixed_passes_match_stock(family, kernels, page_size):
    """Chunked prefill, decodes and rejected drafts of several sequences in one pass change no logits."""
    folder, stock = family
    rng = random.Random(page_size)
    runner = ModelRunner(load_model(folder, dtype="float32"), num_pages=256 // page_size + 40, page_size=page_size)
    paged = [PagedText(runner, text) for text in texts(rng, 5, 17, 33, 70, 1)]

    run_at_random(runner, paged, rng, vocab_size=VOCAB_SIZE)

    assert worst_difference(paged, stock) < TOLERANCE
    for text in paged:
        text.table.free()
    runner.pool.check_integrity()
    assert runner.pool.num_held == 0


def test_whole_prompt_then_decode_matches_stock(family, kernels):
    """Prefill in one pass, then one token at a time."""
    folder, stock = family
    runner = ModelRunner(load_model(folder, dtype="float32"), num_pages=32, page_size=4)
    (token_ids,) = texts(random.Random(1), 30)
    text = PagedText(runner, token_ids)
    text.keep(20, runner.forward([text.row(20)]))
    while text.num_left:
        text.keep(1, runner.forward([text.row(1)]))

    assert worst_difference([text], stock) < TOLERANCE


@pytest.mark.parametrize(("dtype", "tolerance"), [("bfloat16", 0.08), ("float16", 0.01)])
def test_half_precision_is_near_stock(family, kernels, dtype, tolerance):
    """In half precision the logits differ from those of float32 by rounding only; float16 has no compiled layers."""
    folder, stock = family
    runner = ModelRunner(load_model(folder, dtype=dtype), num_pages=32, page_size=4)
    (token_ids,) = texts(random.Random(4), 30)
    text = PagedText(runner, token_ids)
    text.keep(20, runner.forward([text.row(20)]))
    text.keep(10, runner.forward([text.row(10)]))

    expected = stock_logits(stock, token_ids)
    assert (torch.cat(text.logits) - expected).norm() < tolerance * expected.norm()


def test_drafts_are_verified_in_one_pass_and_rolled_back(family, kernels):
    """A pass over a token and its drafts gives the logits after each of them; a rejected tail leaves no trace."""
    folder, stock = family
    runner = ModelRunner(load_model(folder, dtype="float32"), num_pages=32, page_size=4)
    (token_ids,) = texts(random.Random(2), 40)
    text = PagedText(runner, token_ids)
    text.keep(15, runner.forward([text.row(15)]))
    passes = runner.num_forwards
    drafts = [*token_ids[16:19], 7, 9]  # three are right
    verified = runner.forward([text.row(1, drafts)])

    assert runner.num_forwards == passes + 1
    expected = stock_logits(stock, [*token_ids[:16], *drafts])[15:]
    assert (verified - expected).abs().max() < TOLERANCE
    text.keep(4, verified)
    text.keep(text.num_left, runner.forward([text.row(text.num_left)]))
    assert worst_difference([text], stock) < TOLERANCE


def test_every_path_of_a_tree_matches_stock(family, kernels):
    """One pass over a token and a tree of drafts gives, after each node, the logits of the text that ends there."""
    folder, stock = family
    runner = ModelRunner(load_model(folder, dtype="float32"), num_pages=128, page_size=4)
    (token_ids, drafts) = texts(random.Random(6), 67, 7)
    parents = (-1, -1, 0, 0, 1, 2, 5)
    text = PagedText(runner, token_ids, look_ahead=len(drafts))
    text.keep(66, runner.forward([text.row(66)]))
    row = text.row(1, drafts)
    logits = runner.forward([ForwardRow(row.token_ids, row.start, row.table, row.num_logits, parents)])

    for node in range(-1, len(drafts)):
        path, above = [], node
        while above >= 0:
            path.insert(0, drafts[above])
            above = parents[above]
        expected = stock_logits(stock, [*token_ids, *path])[-1]
        assert (logits[1 + node] - expected).abs().max() < TOLERANCE, node


@pytest.mark.parametrize("prompt_length", range(1, 17))
def test_drafts_cross_page_borders(tmp_path_factory, prompt_length):
    """At every prompt length and draft length the verify pass matches stock, across page borders of size 4."""
    folder = tmp_path_factory.getbasetemp() / "border-model"
    if not folder.exists():
        save_tiny_model(folder, "llama", seed=5)
    stock = stock_model(folder)
    runner = ModelRunner(load_model(folder, dtype="float32"), num_pages=16, page_size=4)
    (token_ids,) = texts(random.Random(prompt_length), 24)
    for num_drafts in range(1, 8):
        text = PagedText(runner, token_ids[: prompt_length + num_drafts])
        text.keep(prompt_length - 1, runner.forward([text.row(prompt_length - 1)]) if prompt_length > 1 else _none())
        text.keep(num_drafts + 1, runner.forward([text.row(num_drafts + 1)]))
        assert worst_difference([text], stock) < TOLERANCE, num_drafts
        text.table.free()


def _none():
    return torch.zeros(0, VOCAB_SIZE)


def test_a_pass_may_want_no_logits(tmp_path):
    """A prefill chunk in the middle of a prompt computes K/V and no logits."""
    folder = save_tiny_model(tmp_path, "llama")
    stock = stock_model(folder)
    runner = ModelRunner(load_model(folder, dtype="float32"), num_pages=16, page_size=4)
    (token_ids,) = texts(random.Random(0), 12)
    text = PagedText(runner, token_ids)
    text.table.extend_to(12)

    nothing = runner.forward([ForwardRow(token_ids[:8], 0, text.table, 0)])
    last = runner.forward([ForwardRow(token_ids[8:], 8, text.table, 1)])

    assert nothing.shape == (0, VOCAB_SIZE)
    assert (last[0] - stock_logits(stock, token_ids)[-1]).abs().max() < TOLERANCE


def test_a_model_of_the_first_layers_is_the_stack_cut_off(tmp_path):
    """num_layers gives the model that has only the first layers, with the same norm and head."""
    folder = save_tiny_model(tmp_path / "whole", "qwen2-sliding")
    stock = stock_model(folder)
    stock.model.layers = stock.model.layers[:1]
    stock.model.config.num_hidden_layers = 1
    runner = ModelRunner(load_model(folder, dtype="float32", num_layers=1), num_pages=16, page_size=4)
    (token_ids,) = texts(random.Random(0), 12)
    text = PagedText(runner, token_ids)
    text.keep(12, runner.forward([text.row(12)]))

    assert worst_difference([text], stock) < TOLERANCE
