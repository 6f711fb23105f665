"""Draft models: cut from a target, written to folders; the losses that teach them."""

import json

import pytest
import torch
from safetensors.torch import load_file

from paceline.errors import ConfigError, ModelRefusedError
from paceline.modeling.loader import load_model
from paceline.training.distillation import acceptance, hybrid_loss, kl_loss
from paceline.training.draft_model import load_learnt, new_draft_model, save_draft_model
from tiny_models import VOCAB_SIZE, save_tiny_model

IDS = tuple(range(0, VOCAB_SIZE, 2))  # the draft vocabulary


@pytest.fixture(scope="module")
def target(tmp_path_factory):
    return save_tiny_model(tmp_path_factory.mktemp("target"), num_hidden_layers=3, tie_word_embeddings=True)


def test_a_draft_model_begins_as_the_targets_first_layers(target):
    """Embedding, layers and head are the target's own; only layers and norm learn."""
    draft = new_draft_model(target, num_layers=2, draft_token_ids=IDS)
    theirs = load_file(target / "model.safetensors")

    assert {name.split(".")[1] for name in draft.learnt()} == {"layers", "norm"}
    assert all(torch.equal(tensor, theirs[name]) for name, tensor in draft.learnt().items())
    assert torch.equal(draft.head, theirs["model.embed_tokens.weight"][list(IDS)])


def test_a_checkpoint_of_other_layers_is_refused(target):
    """It would leave some layers as they were."""
    draft = new_draft_model(target, num_layers=1, draft_token_ids=IDS)

    with pytest.raises(ConfigError, match="other layers"):
        load_learnt(new_draft_model(target, num_layers=2, draft_token_ids=IDS), draft.learnt())


def test_a_folder_loads_as_any_model_or_with_its_target(target, tmp_path):
    """Whole with embedding and head in it, slim with those of the target; the vocabulary lies beside it."""
    draft = new_draft_model(target, num_layers=2, draft_token_ids=IDS)
    save_draft_model(draft, tmp_path / "whole", target_folder=target, whole=True)
    save_draft_model(draft, tmp_path / "slim", target_folder=target)

    loaded = load_model(tmp_path / "whole", dtype="float32")
    slim = load_file(tmp_path / "slim" / "model.safetensors")

    lent = load_model(tmp_path / "slim", dtype="float32", lender=target).model

    assert loaded.num_layers == 2
    assert torch.equal(lent.get_input_embeddings().weight, draft.model.get_input_embeddings().weight)
    assert json.loads((tmp_path / "slim" / "draft_vocabulary.json").read_text())["token_ids"] == list(IDS)
    assert slim.keys() == draft.learnt().keys()
    assert {tensor.dtype for tensor in slim.values()} == {torch.bfloat16}


def test_a_draft_model_has_fewer_layers_than_its_target(target):
    """Otherwise it would be no draft model."""
    with pytest.raises(ModelRefusedError, match="3 layers cannot be cut from a target of 3"):
        new_draft_model(target, num_layers=3, draft_token_ids=IDS)


def test_equal_laws_have_no_loss_and_full_acceptance():
    """And the overlap of two known laws is their overlap, KL their KL."""
    one, other = torch.tensor([[0.6, 0.3, 0.1]]).log(), torch.tensor([[0.1, 0.1, 0.8]]).log()
    expected_kl = sum(p * torch.log(torch.tensor(p / q)) for p, q in ((0.1, 0.6), (0.1, 0.3), (0.8, 0.1)))

    assert float(hybrid_loss(one, one)) == pytest.approx(0, abs=1e-6)
    assert float(acceptance(one, other)) == pytest.approx(0.3)
    assert float(kl_loss(one, other)) == pytest.approx(float(expected_kl))


def test_the_hybrid_loss_has_a_gradient_where_the_overlap_has_none():
    """A draft law far away from the target's is pulled by KL."""
    target = torch.tensor([[30.0, 0.0]])
    draft = torch.tensor([[-30.0, 0.0]], requires_grad=True)
    hybrid_loss(draft, target).sum().backward()
    pulled = draft.grad.abs().max()
    draft.grad = None
    (1 - acceptance(draft, target)).sum().backward()

    assert pulled > 0.5
    assert draft.grad.abs().max() < 1e-6
