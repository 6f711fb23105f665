"""Draft models that borrow their target's tables."""

import pytest
import torch
from safetensors.torch import load_file, save_file

from paceline.errors import ModelRefusedError, ModelUnavailableError
from paceline.modeling.loader import load_model
from tiny_models import save_tiny_model

TABLES = ("model.embed_tokens.weight", "lm_head.weight")


def without_tables(folder):
    """The same model as a draft model would be kept."""
    path = folder / "model.safetensors"
    tensors = load_file(path)
    save_file({name: tensor for name, tensor in tensors.items() if name not in TABLES}, path, metadata={"format": "pt"})
    return folder


@pytest.mark.parametrize("tied", [True, False])
def test_tables_that_are_left_out_come_from_the_target(tmp_path, tied):
    """Embedding and head, tied or not; layers are the draft model's own."""
    target = save_tiny_model(tmp_path / "target", tie_word_embeddings=tied)
    draft = without_tables(save_tiny_model(tmp_path / "draft", seed=1, tie_word_embeddings=tied))
    theirs, own = load_file(target / "model.safetensors"), load_file(draft / "model.safetensors")

    model = load_model(draft, dtype="float32", lender=target).model

    assert torch.equal(model.get_input_embeddings().weight, theirs["model.embed_tokens.weight"])
    assert torch.equal(model.model.norm.weight, own["model.norm.weight"])


def test_without_a_target_a_draft_model_is_incomplete(tmp_path):
    """It is never filled with random numbers."""
    draft = without_tables(save_tiny_model(tmp_path / "draft", tie_word_embeddings=True))

    with pytest.raises(ModelUnavailableError, match="lacks"):
        load_model(draft, dtype="float32")


def test_a_target_of_another_size_is_refused(tmp_path):
    """The sentence has both sizes."""
    target = save_tiny_model(tmp_path / "target", tie_word_embeddings=True, vocab_size=96)
    draft = without_tables(save_tiny_model(tmp_path / "draft", tie_word_embeddings=True))

    with pytest.raises(ModelRefusedError, match=r"\[128, 64\].*\[96, 64\]"):
        load_model(draft, dtype="float32", lender=target)


def test_a_target_lends_no_layers(tmp_path):
    """A damaged download stays one."""
    target = save_tiny_model(tmp_path / "target", tie_word_embeddings=True)
    draft = without_tables(save_tiny_model(tmp_path / "draft", tie_word_embeddings=True))
    tensors = load_file(draft / "model.safetensors")
    del tensors["model.norm.weight"]
    save_file(tensors, draft / "model.safetensors", metadata={"format": "pt"})

    with pytest.raises(ModelUnavailableError, match=r"lacks 1 weights, such as 'model\.norm\.weight'"):
        load_model(draft, dtype="float32", lender=target)
