"""Draft models: cut from a target, taught by it, interrupted and gone on with."""

import json

import pytest
import torch
from safetensors.torch import load_file

from paceline.errors import ConfigError, ModelRefusedError
from paceline.modeling.loader import load_model
from paceline.training.corpus import Dialogue
from paceline.training.distillation import acceptance, hybrid_loss, kl_loss, simulated_tau
from paceline.training.draft_model import load_learnt, new_draft_model, save_draft_model
from paceline.training.draft_training import DraftTraining, TrainingOptions
from paceline.training.teacher import ModelTeacher
from tiny_models import VOCAB_SIZE, save_tiny_model, stock_model

IDS = tuple(range(0, VOCAB_SIZE, 2))  # the draft vocabulary
OPTIONS = TrainingOptions(epochs=4, batch_tokens=256, learning_rate=5e-3, check_every=4, patience=100)


@pytest.fixture(scope="module")
def target(tmp_path_factory):
    return save_tiny_model(tmp_path_factory.mktemp("target"), num_hidden_layers=3, tie_word_embeddings=True)


@pytest.fixture
def dialogues():
    generator = torch.Generator().manual_seed(0)
    texts = torch.randint(3, VOCAB_SIZE, (48, 24), generator=generator).tolist()
    return [Dialogue(tuple(text[:6]), tuple(text[6:]), 0.0, "a") for text in texts]


def training(target, folder, options=OPTIONS):
    draft = new_draft_model(target, num_layers=1, draft_token_ids=IDS)
    return draft, DraftTraining(draft, ModelTeacher(target, dtype=torch.float32), folder, options)


def stock_choices(folder, token_ids):
    """``[batch, tokens]``: what Transformers' own model finds likeliest."""
    with torch.inference_mode():
        return stock_model(folder)(token_ids, use_cache=False).logits.argmax(-1)


def losses(folder):
    return [json.loads(line)["loss"] for line in (folder / "metrics.jsonl").read_text().splitlines()]


def test_a_draft_model_begins_as_the_targets_first_layers(target):
    """Embedding, layers and head are the target's own; only layers and norm learn."""
    draft = new_draft_model(target, num_layers=2, draft_token_ids=IDS)
    theirs = load_file(target / "model.safetensors")

    assert {name.split(".")[1] for name in draft.learnt()} == {"layers", "norm"}
    assert all(torch.equal(tensor, theirs[name]) for name, tensor in draft.learnt().items())
    assert torch.equal(draft.head, theirs["model.embed_tokens.weight"][list(IDS)])


def test_training_brings_the_draft_model_nearer_to_its_target(target, tmp_path, dialogues):
    """Loss falls, and the weights that are kept are those of the best check."""
    draft, run = training(target, tmp_path)
    outcome = run.run(dialogues[:40], dialogues[40:])
    curve = losses(tmp_path)
    kl = curve[: int(0.4 * len(curve))]

    assert kl[-1] < 0.8 * kl[0]
    assert outcome.tau > 1
    assert outcome.token_passes == 4 * 40 * 18
    best = load_file(tmp_path / "best.safetensors")
    assert all(torch.equal(tensor, best[name]) for name, tensor in draft.learnt().items())


def test_embedding_and_head_stay_the_targets(target, tmp_path, dialogues):
    """They are shared with it when the draft model serves."""
    draft, run = training(target, tmp_path)
    before = draft.model.get_input_embeddings().weight.clone()
    run.run(dialogues[:40], dialogues[40:])

    assert torch.equal(draft.model.get_input_embeddings().weight, before)


def test_a_training_that_was_killed_goes_on_with_the_same_losses(target, tmp_path, dialogues):
    """Killed between two checks: steps after the last are taken again, and the curve is that of one whole run."""

    class KilledError(Exception):
        pass

    def kill(progress):
        if progress.step == 6:
            raise KilledError

    training(target, tmp_path / "whole")[1].run(dialogues[:40], dialogues[40:])
    with pytest.raises(KilledError):
        training(target, tmp_path / "killed")[1].run(dialogues[:40], dialogues[40:], kill)
    training(target, tmp_path / "killed")[1].run(dialogues[:40], dialogues[40:])

    assert losses(tmp_path / "killed") == losses(tmp_path / "whole")


def test_another_training_does_not_go_on_in_the_same_folder(target, tmp_path, dialogues):
    """Other options, other layers: both are said."""
    draft, run = training(target, tmp_path)
    run.run(dialogues[:40], dialogues[40:])
    other = TrainingOptions(epochs=1)

    with pytest.raises(ConfigError, match="other options"):
        training(target, tmp_path, other)[1].run(dialogues[:40], dialogues[40:])
    with pytest.raises(ConfigError, match="other layers"):
        load_learnt(new_draft_model(target, num_layers=2, draft_token_ids=IDS), draft.learnt())


def test_only_answers_are_learnt_from(target, tmp_path, dialogues):
    """The loss has one term for each token of an answer, wherever padding and prompts are."""
    batch = [dialogues[0], Dialogue((1, 2), (3, 4, 5), 0.0, "a")]
    _, run = training(target, tmp_path)
    both, alone = run._places(batch), run._places(batch[1:])

    assert len(both.drafted) == len(both.wanted) == 18 + 3
    assert torch.allclose(both.drafted[18:].float(), alone.drafted.float(), atol=0.05)  # padding is not seen


def test_a_choice_that_cannot_be_drafted_never_counts_as_agreement(target, tmp_path, dialogues):
    """The target chooses among all tokens; the best of the draft vocabulary is no substitute for its choice."""
    _, run = training(target, tmp_path)
    places = run._places(dialogues[:4])
    token_ids = torch.tensor([(*one.prompt_ids, *one.answer_ids) for one in dialogues[:4]])
    expected = stock_choices(target, token_ids)[:, 5:-1].flatten()

    assert {int(choice) % 2 for choice in expected} == {0, 1}  # some of both kinds
    assert places.choices.tolist() == [int(choice) // 2 if choice % 2 == 0 else -1 for choice in expected]


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


@pytest.mark.parametrize(
    ("agrees", "depth", "tau"),
    [
        ([1, 1, 1, 1], 2, 3.0),
        ([0, 0, 0, 0], 2, 1.0),
        ([1, 0, 1, 1], 2, 1 + (1 + 0 + 2) / 3),
        ([1, 1, 0, 1, 1], 1, 1 + 4 / 5),
    ],
)
def test_tau_is_simulated_from_runs_of_agreement(agrees, depth, tau):
    """A chain is accepted as far as both agree without a break; places too near the end do not count."""
    assert simulated_tau([torch.tensor(agrees, dtype=torch.bool)], depth=depth) == pytest.approx(tau)
    assert simulated_tau([], depth=depth) == 0


class OutsideTeacher(ModelTeacher):
    """A target that always chooses what cannot be drafted."""

    def choices(self, hidden):
        return torch.full((len(hidden),), IDS[0] + 1)


def test_a_check_counts_only_true_choices(target, tmp_path, dialogues):
    """A drafter that can never propose what its target chooses has no acceptance, however well it fits the rest."""
    draft = new_draft_model(target, num_layers=1, draft_token_ids=IDS)
    run = DraftTraining(draft, OutsideTeacher(target, dtype=torch.float32), tmp_path, OPTIONS)
    outcome = run.run(dialogues[:40], dialogues[40:])

    assert (outcome.tau, outcome.first) == (1.0, 0.0)
