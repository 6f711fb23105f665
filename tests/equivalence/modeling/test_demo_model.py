"""The demo model over pages: the logits of its stock forward pass, and the same bits in every pass."""

import random

import pytest
import torch
from transformers import AutoTokenizer

from paceline.modeling.loader import load_model
from paceline.modeling.resolve import resolve_model
from paceline.modeling.runner import ModelRunner
from paceline.text.tokenizer import TextTokenizer
from paged_text import PagedText, run_at_random
from tiny_models import stock_logits, stock_model

pytestmark = pytest.mark.model

TEXT = "The capital of France is Paris. Write the numbers:  1998, 12345 and 7.\n\nAnswer: 1998, 12345 and 7.\n"


@pytest.fixture(scope="module")
def folder():
    return resolve_model("smollm2-135m")


@pytest.fixture(scope="module")
def runner(folder):
    return ModelRunner(load_model(folder, dtype="float32"), num_pages=64, page_size=16)


@pytest.fixture(scope="module")
def token_ids(folder):
    return AutoTokenizer.from_pretrained(folder)(TEXT).input_ids


def compute(runner, token_ids, *, prefill, step):
    """Logits of all tokens, computed as one prefill and passes of ``step`` tokens."""
    text = PagedText(runner, token_ids)
    text.keep(prefill, runner.forward([text.row(prefill)]))
    while text.num_left:
        count = min(step, text.num_left)
        text.keep(count, runner.forward([text.row(count)]))
    text.table.free()
    return torch.cat(text.logits)


def test_the_paged_model_matches_stock(runner, folder, token_ids):
    """Prefill and decode over pages give the logits of one whole-text pass."""
    paged = compute(runner, token_ids, prefill=20, step=5)

    assert (paged - stock_logits(stock_model(folder), token_ids)).abs().max() < 2e-3  # of logits up to 30


def test_a_token_has_the_same_bits_in_every_pass(runner):
    """Float32 on CPU: alone, among drafts, in prefill chunks of any size, beside other sequences."""
    rng = random.Random(4)
    token_ids = [[rng.randrange(17, runner.vocab_size) for _ in range(length)] for length in (290, 70, 25)]
    alone = [compute(runner, ids, prefill=len(ids) - 12, step=1) for ids in token_ids]
    together = [PagedText(runner, ids) for ids in token_ids]
    run_at_random(runner, together, rng, vocab_size=runner.vocab_size)

    for text, expected in zip(together, alone, strict=True):
        assert torch.equal(torch.cat(text.logits), expected)
        text.table.free()


def test_digits_are_separate_tokens(folder):
    """The converted tokenizer splits digits from spaces, as the model was trained."""
    tokenizer = AutoTokenizer.from_pretrained(folder)

    assert tokenizer.tokenize("a  12") == ["a", "ĠĠ", "1", "2"]
    assert tokenizer.decode(tokenizer(TEXT).input_ids) == TEXT


def test_the_folder_knows_how_an_answer_ends(folder):
    """End of turn is the model's end token, and the chat template is in the folder."""
    tokenizer = AutoTokenizer.from_pretrained(folder)
    prompt = tokenizer.apply_chat_template(
        [{"role": "user", "content": "Hi"}], tokenize=False, add_generation_prompt=True
    )

    assert TextTokenizer.load(folder).eos_token_ids == (2,)
    assert prompt.endswith("<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n")
