import pytest
import torch

from paceline.modeling.forward_row import ForwardRow
from paceline.modeling.loader import load_model
from paceline.modeling.runner import ModelRunner
from paged_text import PagedText
from tiny_models import VOCAB_SIZE, save_tiny_model


@pytest.fixture(scope="module")
def loaded(tmp_path_factory):
    return load_model(save_tiny_model(tmp_path_factory.mktemp("llama")), dtype="bfloat16")


def test_logits_come_in_row_order_in_float32(loaded):
    """Each row gets the logits of its last num_logits tokens, also where the model is half precision."""
    runner = ModelRunner(loaded, num_pages=16, page_size=4)
    texts = [PagedText(runner, [5, 6, 7, 8]), PagedText(runner, [9, 10, 11])]
    for text in texts:
        text.table.extend_to(4)
    together = runner.forward(
        [ForwardRow([5, 6, 7, 8], 0, texts[0].table, 1), ForwardRow([9, 10, 11], 0, texts[1].table, 2)]
    )
    alone = runner.forward([ForwardRow([9, 10, 11], 0, texts[1].table, 2)])

    assert together.dtype == torch.float32
    assert together.shape == (3, VOCAB_SIZE)
    assert torch.allclose(together[1:], alone, atol=0.1)
    assert not torch.allclose(together[0], together[1], atol=0.1)


def test_forwards_are_counted(loaded):
    """One call is one pass, whatever is in it."""
    runner = ModelRunner(loaded, num_pages=16, page_size=4)
    text = PagedText(runner, [5, 6, 7, 8])
    text.keep(2, runner.forward([text.row(2)]))
    text.keep(1, runner.forward([text.row(1, drafts=[3, 3])]))

    assert runner.num_forwards == 2


def test_the_runner_states_its_limits(loaded):
    """Pool, vocabulary and context length are the model's and the caller's."""
    runner = ModelRunner(loaded, num_pages=16, page_size=4)

    assert (runner.vocab_size, runner.context_length) == (VOCAB_SIZE, 512)
    assert (runner.pool.num_pages, runner.pool.page_size) == (16, 4)
