"""The whole way from dialogues to a folder that serves."""

import json
from dataclasses import replace

import pytest
import torch
from safetensors.torch import load_file

from paceline.errors import ConfigError
from paceline.modeling.loader import load_model
from paceline.training.loop import LoopOptions
from paceline.training.make_draft_model import DraftModelJob, make_draft_model
from paceline.training.record import read_record
from paceline.training.teacher import ModelTeacher
from tiny_models import save_tiny_model
from tiny_tokenizers import byte_level

OPTIONS = LoopOptions(epochs=1, batch_tokens=256, check_every=10)


@pytest.fixture
def job(tmp_path):
    target = save_tiny_model(tmp_path / "target", num_hidden_layers=3, vocab_size=320, tie_word_embeddings=True)
    byte_level().save_pretrained(target)
    data = tmp_path / "answers.jsonl"
    lines = [
        {"prompt_ids": [1, index % 250, 7], "answer_ids": [5 + index % 11, 9, 2], "temperature": 0.0}
        for index in range(300)
    ]
    data.write_text("\n".join(map(json.dumps, lines)))
    return {
        "data": (data,),
        "output": tmp_path / "draft",
        "work": tmp_path / "work",
        "features": None,
        "model": str(target),
        "start": None,
        "layers": 1,
        "vocabulary": 64,
        "vocabulary_of": None,
        "drop_loops": True,
        "most_tokens": 300,
        "whole": False,
        "command": "paceline train draft-model",
    }


def make(job, *, options=OPTIONS, **changes):
    make_draft_model(DraftModelJob(**job | changes), options, lambda _: None)


def test_a_folder_comes_out_that_its_target_completes(job, tmp_path):
    """With weights, vocabulary and a record that names data, tokens and parameters."""
    make(job)
    record = read_record(tmp_path / "draft")
    loaded = load_model(tmp_path / "draft", dtype="float32", lender=tmp_path / "target")

    assert loaded.num_layers == 1
    assert (record.method, record.answer_tokens) == ("draft_model", 300)
    assert 0 < record.token_passes <= 300  # the rest cannot be drafted
    assert record.data[0].name == "answers.jsonl"
    assert 0 < record.share < 1
    assert record.measured["coverage"] == 1.0


def test_the_vocabulary_of_another_drafter_can_be_shared(job, tmp_path):
    """So that one head serves both."""
    make(job)
    make(job, output=tmp_path / "other", work=tmp_path / "other.work", vocabulary=100, vocabulary_of=tmp_path / "draft")

    name = "draft_vocabulary.json"
    assert (tmp_path / "other" / name).read_text() == (tmp_path / "draft" / name).read_text()
    with pytest.raises(ConfigError, match="has no draft vocabulary"):
        make(job, vocabulary_of=tmp_path)


def test_a_trained_draft_model_is_gone_on_with(job, tmp_path):
    """From its weights and vocabulary; the record tells both trainings."""
    make(job)
    begin = load_file(tmp_path / "draft" / "model.safetensors")
    make(
        job,
        start=tmp_path / "draft",
        output=tmp_path / "more",
        work=tmp_path / "more.work",
        vocabulary=100,
        options=replace(OPTIONS, learning_rate=0.0),
    )
    record = read_record(tmp_path / "more")

    name = "draft_vocabulary.json"
    assert (tmp_path / "more" / name).read_text() == (tmp_path / "draft" / name).read_text()
    more = load_file(tmp_path / "more" / "model.safetensors")
    assert all(torch.equal(more[name], tensor) for name, tensor in begin.items())
    assert len(record.commands) == 2
    assert record.token_passes > read_record(tmp_path / "draft").token_passes


def test_a_draft_model_of_other_layers_is_not_gone_on_with(job, tmp_path):
    """The sentence says what to give."""
    make(job)
    with pytest.raises(ConfigError, match="give --layers as many as it has"):
        make(job, start=tmp_path / "draft", layers=2, work=tmp_path / "other.work")
    (tmp_path / "draft" / "model.safetensors").write_bytes(b"nothing")
    with pytest.raises(ConfigError, match="no draft model to begin with"):
        make(job, start=tmp_path / "draft", work=tmp_path / "other.work")


def test_too_little_data_is_refused(job, tmp_path):
    """Without dialogues held out nobody could say when to stop."""
    data = tmp_path / "one.jsonl"
    data.write_text('{"prompt_ids": [1], "answer_ids": [5, 2], "temperature": 0}')

    with pytest.raises(ConfigError, match="too few dialogues"):
        make(job, data=(data,))


def test_other_data_is_another_training(job):
    """Batches would be others from the middle on."""
    make(job)
    with job["data"][0].open("a") as file:
        file.write('\n{"prompt_ids": [1, 251, 7], "answer_ids": [5, 9, 2], "temperature": 0.0}\n')
    with pytest.raises(ConfigError, match="other options or data"):
        make(job, most_tokens=None)


def test_the_target_reads_every_dialogue_once(job, tmp_path, monkeypatch):
    """However many epochs there are, and however many drafters are taught with the same features."""
    read = []
    hidden = ModelTeacher.hidden
    monkeypatch.setattr(ModelTeacher, "hidden", lambda self, ids: read.append(ids.shape[0]) or hidden(self, ids))
    options = replace(OPTIONS, epochs=3)
    for name in ("one", "other"):
        places = {"output": tmp_path / name, "work": tmp_path / f"{name}.work", "features": tmp_path / "features"}
        make_draft_model(DraftModelJob(**job | places), options, lambda _: None)

    assert 100 < sum(read) <= 300
