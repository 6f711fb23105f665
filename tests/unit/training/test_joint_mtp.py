"""A target that learns together with its MTP modules, and serves with them."""

import json

import pytest
import torch
from safetensors.torch import load_file

from paceline.errors import ConfigError
from paceline.modeling.heads.checkpoint import has_native_mtp, load_head
from paceline.modeling.heads.new_heads import new_mtp
from paceline.modeling.heads.target_weights import weights_of_loaded
from paceline.modeling.loader import load_model
from paceline.training.corpus import Dialogue
from paceline.training.head_training import HeadTraining, HeadTrainingOptions
from paceline.training.joint_mtp import JointPupil
from paceline.training.plain_model import load_plain
from tiny_models import save_tiny_model
from tiny_tokenizers import byte_level

DIALOGUES = [Dialogue((1, index % 9), (5, 6, 7, 8, 9), 0.0, "") for index in range(8)]


@pytest.fixture(params=[True, False], ids=["tied", "untied"])
def target(request, tmp_path):
    folder = save_tiny_model(tmp_path / "target", vocab_size=320, tie_word_embeddings=request.param)
    byte_level().save_pretrained(folder)
    return folder


def new_pupil(target, weight):
    torch.manual_seed(0)
    model = load_plain(target, dtype=torch.float32)
    return JointPupil(model, new_mtp(model, num_modules=2), weight=weight)


def gradients(pupil, part):
    loss, _ = pupil(DIALOGUES, hybrid=False)
    names, tensors = zip(*[item for item in pupil.learnt().items() if item[0].startswith(part)], strict=True)
    found = torch.autograd.grad(loss, tensors, allow_unused=True)
    return loss.item(), dict(zip(names, found, strict=True))


def test_trunk_and_modules_learn_from_one_loss(target):
    """The modules' loss counts by lambda, and its gradient reaches all of the trunk through their input."""
    alone, trunk_alone = gradients(new_pupil(target, 0.0), "model.")
    little, trunk = gradients(new_pupil(target, 0.3), "model.")
    much, modules = gradients(new_pupil(target, 0.6), "head.")

    assert much - alone == pytest.approx(2 * (little - alone), rel=1e-3)
    assert all(gradient is not None and gradient.any() for gradient in modules.values())
    assert all(not torch.equal(trunk_alone[name], gradient) for name, gradient in trunk.items())


def test_a_target_with_its_own_modules_comes_out(target, tmp_path):
    """It loads as a target, and as its own modules without another file; it is another target than before."""
    data = tmp_path / "answers.jsonl"
    lines = [
        {"prompt_ids": [1, index % 250, 7], "answer_ids": [100 + index % 90, 9, 30, 2], "temperature": 0.0}
        for index in range(200)
    ]
    data.write_text("\n".join(map(json.dumps, lines)))
    options = HeadTrainingOptions(
        method="mtp", data=[data], work=tmp_path / "work", model=str(target), modules=2, joint=0.3, epochs=4,
        batch_tokens=256, learning_rate=3e-3,
    )  # fmt: skip
    training = HeadTraining(options, dtype=torch.float32)
    training.compute_features()
    training.run()
    training.save(tmp_path / "new", command="paceline train mtp --joint 0.3")
    losses = [json.loads(line)["loss"] for line in (tmp_path / "work" / "metrics.jsonl").read_text().splitlines()]
    loaded = load_model(tmp_path / "new", dtype="float32")
    head = load_head(tmp_path / "new", weights_of_loaded(loaded, tmp_path / "new"))
    old, new = (load_file(folder / "model.safetensors") for folder in (target, tmp_path / "new"))

    assert losses[-1] < 0.9 * losses[0]
    assert has_native_mtp(tmp_path / "new")
    assert (head.spec.num_modules, head.spec.draft_vocab_size) == (2, 320)
    assert old.keys() < new.keys()
    assert any(not torch.equal(tensor, new[name].to(tensor.dtype)) for name, tensor in old.items())
    assert (tmp_path / "new" / "tokenizer.json").exists()


def test_what_cannot_be_trained_together_is_said(target, tmp_path):
    """Parallel modules, or modules that were trained for the target as it was."""
    for changes in ({"parallel": True}, {"start": tmp_path}):
        with pytest.raises(ConfigError, match="sequential modules from the beginning"):
            HeadTraining(
                HeadTrainingOptions(method="mtp", data=[], work=tmp_path, model=str(target), joint=0.3, **changes)
            )
