"""The demo model over pages: the logits of its stock forward pass, and its converted tokenizer."""

import pytest
import torch
from transformers import AutoTokenizer

from paceline.modeling.loader import load_model
from paceline.modeling.resolve import resolve_model
from paceline.modeling.runner import ModelRunner
from paceline.text.tokenizer import TextTokenizer
from paged_text import PagedText
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
