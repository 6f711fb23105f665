"""The whole way from dialogues to the folder of a head that serves."""

import hashlib
import json

import pytest
import torch

from paceline.errors import ConfigError
from paceline.modeling.heads.checkpoint import load_head
from paceline.modeling.heads.draft_vocabulary import read_vocabulary
from paceline.modeling.heads.target_weights import weights_of_folder
from paceline.training.head_training import HeadTraining, HeadTrainingOptions
from paceline.training.record import read_record
from tiny_models import save_tiny_model
from tiny_tokenizers import byte_level


@pytest.fixture(scope="module")
def target(tmp_path_factory):
    folder = save_tiny_model(tmp_path_factory.mktemp("target"), num_hidden_layers=2, vocab_size=320)
    byte_level().save_pretrained(folder)
    return folder


@pytest.fixture
def options(target, tmp_path):
    data = tmp_path / "answers.jsonl"
    lines = [
        {"prompt_ids": [1, index % 250, 7], "answer_ids": [100 + index % 90, 9, 30, 2], "temperature": 0.0}
        for index in range(300)
    ]
    data.write_text("\n".join(map(json.dumps, lines)))
    return {
        "method": "eagle",
        "data": [data],
        "work": tmp_path / "work",
        "model": str(target),
        "vocabulary": 64,
        "epochs": 2,
        "batch_tokens": 256,
        "check_every": 4,
        "precision": "float32",
    }


def train(options, output, **changes):
    """Train, and write to ``output``."""
    training = HeadTraining(HeadTrainingOptions(**options | changes), dtype=torch.float32)
    training.compute_features()
    training.run()
    training.save(output, command="paceline train")
    return training


def log(folder):
    return [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]


@pytest.mark.parametrize(
    ("changes", "num_depths"),
    [
        ({"method": "eagle"}, 4),
        ({"method": "mtp", "modules": 2}, 4),
        ({"method": "mtp", "parallel": True, "modules": 2}, 2),
        ({"method": "medusa", "heads": 3}, 3),
    ],
)
def test_a_head_comes_out_that_its_target_loads(changes, num_depths, options, target, tmp_path):
    """With its draft vocabulary, and a record that names data, tokens, parameters and what was measured."""
    train(options, tmp_path / "head", **changes)
    head = load_head(tmp_path / "head", weights_of_folder(target, dtype=torch.float32))
    record = read_record(tmp_path / "head")

    assert head.spec.method == record.method == changes["method"]
    assert head.spec.draft_vocab_size == 64
    assert record.data[0].name == "answers.jsonl"
    assert record.answer_tokens % 4 == 0
    assert record.token_passes <= 2 * record.answer_tokens
    assert 0 < record.share < 1
    assert 0.5 < record.measured["coverage"] <= 1.0
    assert len(record.measured["accepted"]) == num_depths


def test_training_brings_the_head_nearer_to_its_target(options, tmp_path):
    """Loss falls on the few answers there are."""
    train(options, tmp_path / "head", epochs=6, learning_rate=3e-3, hybrid_from=1.0)
    curve = [line["loss"] for line in log(tmp_path / "work")]

    assert sum(curve[-4:]) < 0.8 * sum(curve[:4])


def test_a_trained_head_is_gone_on_with(options, tmp_path):
    """It begins as it ended, with its own draft vocabulary whatever is asked for."""
    first = train(options, tmp_path / "head")
    again = HeadTraining(
        HeadTrainingOptions(**options | {"start": tmp_path / "head", "work": tmp_path / "more", "vocabulary": 80}),
        dtype=torch.float32,
    )

    assert again.pupil().head.spec.draft_token_ids == first.pupil().head.spec.draft_token_ids
    for name, tensor in first.pupil().learnt().items():
        assert torch.allclose(again.pupil().learnt()[name], tensor, atol=0.02), name  # written in bfloat16
    with pytest.raises(ConfigError, match="method 'eagle'"):
        HeadTraining(
            HeadTrainingOptions(**options | {"start": tmp_path / "head", "method": "medusa"}), dtype=torch.float32
        )


def test_the_record_of_a_head_that_was_gone_on_with_tells_the_whole_way(options, tmp_path):
    """Commands in order, and the tokens and seconds of both trainings."""
    train(options, tmp_path / "head")
    train(options, tmp_path / "more", start=tmp_path / "head", work=tmp_path / "w")
    first, both = read_record(tmp_path / "head"), read_record(tmp_path / "more")

    assert both.commands == (*first.commands, *first.commands)
    assert both.token_passes == 2 * first.token_passes
    assert both.seconds > first.seconds


def test_the_vocabulary_of_another_drafter_can_be_shared(options, tmp_path):
    """One reduced output head then serves both."""
    train(options, tmp_path / "eagle")
    train(options, tmp_path / "mtp", method="mtp", work=tmp_path / "w", vocabulary=80, vocabulary_of=tmp_path / "eagle")

    assert read_vocabulary(tmp_path / "mtp", 320) == read_vocabulary(tmp_path / "eagle", 320)


def test_a_drafter_without_a_vocabulary_file_lends_none(options, tmp_path):
    """Medusa's lies among its tensors: it is said, instead of choosing another vocabulary."""
    train(options, tmp_path / "medusa", method="medusa")

    with pytest.raises(ConfigError, match="no draft vocabulary"):
        train(options, tmp_path / "eagle", work=tmp_path / "w", vocabulary_of=tmp_path / "medusa")


@pytest.mark.parametrize(("method", "changes"), [("mtp", {"modules": 3}), ("medusa", {"heads": 5})])
def test_every_module_of_a_head_that_is_gone_on_with_is_trained(method, changes, options, tmp_path):
    """Also where the second command does not say how many there are."""
    train(options, tmp_path / "head", method=method, epochs=1, **changes)
    again = HeadTraining(
        HeadTrainingOptions(**options | {"method": method, "start": tmp_path / "head", "work": tmp_path / "more"}),
        dtype=torch.float32,
    )

    assert again.pupil().lesson.depth == next(iter(changes.values()))


def test_the_record_names_the_data_that_was_read(options, tmp_path):
    """Not what the file has become since: answers may be appended while a training runs."""
    read = hashlib.sha256(options["data"][0].read_bytes()).hexdigest()
    training = HeadTraining(HeadTrainingOptions(**options | {"epochs": 1}), dtype=torch.float32)
    with options["data"][0].open("a") as file:
        file.write('\n{"prompt_ids": [3], "answer_ids": [5, 6], "temperature": 0.0}')
    training.compute_features()
    training.run()
    training.save(tmp_path / "head", command="paceline train")

    assert read_record(tmp_path / "head").data[0].sha256 == read


def test_the_same_command_goes_on_and_another_is_refused(options, tmp_path):
    """Nothing is trained again once it is done; other data or options need another folder."""
    train(options, tmp_path / "head")
    before = log(tmp_path / "work")
    train(options, tmp_path / "head")
    assert log(tmp_path / "work") == before

    for changes in ({"most_tokens": 100}, {"unroll": 3}, {"vocabulary": 70}):
        with pytest.raises(ConfigError, match="other options or data"):
            train(options, tmp_path / "head", **changes)


def test_what_cannot_be_trained_is_said(options):
    """Too little data, an unknown precision."""
    options["data"][0].write_text(json.dumps({"prompt_ids": [1], "answer_ids": [5, 6], "temperature": 0.0}))
    with pytest.raises(ConfigError, match="too few dialogues"):
        HeadTraining(HeadTrainingOptions(**options))
    with pytest.raises(ConfigError, match="neither bfloat16 nor float32"):
        HeadTraining(HeadTrainingOptions(**options | {"precision": "float8"}))
