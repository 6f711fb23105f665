"""Published pickles become safetensors; what could run code is refused, and nothing half-written stays."""

import json
import pickle

import pytest
import torch
from safetensors.torch import load_file
from typer.testing import CliRunner

from paceline.cli import models
from paceline.errors import ModelRefusedError, ModelUnavailableError
from paceline.modeling.convert_pickle import convert_pickles
from paceline.modeling.heads.checkpoint import load_head
from paceline.modeling.heads.target_weights import weights_of_model
from tiny_heads import tiny_target
from tiny_models import VOCAB_SIZE


class Harmful:
    """Unpickling it would call print."""

    def __reduce__(self):
        return print, ("ran",)


def published_medusa(folder):
    """A pickle in the layout of Medusa's authors; returns its tensors."""
    folder.mkdir(parents=True)
    (folder / "config.json").write_text(json.dumps({"medusa_num_heads": 1, "medusa_num_layers": 1}))
    tensors = {"0.0.linear.weight": torch.randn(64, 64), "0.1.weight": torch.randn(VOCAB_SIZE, 64)}
    torch.save(tensors, folder / "medusa_lm_head.pt")
    return tensors


def test_a_published_head_loads_once_converted(tmp_path):
    """The way that the refusal names: convert, then serve."""
    tensors = published_medusa(tmp_path / "published")
    target = weights_of_model(tiny_target())
    with pytest.raises(ModelRefusedError, match="paceline models convert"):
        load_head(tmp_path / "published", target)
    result = CliRunner().invoke(models.app, ["convert", str(tmp_path / "published"), str(tmp_path / "out")])

    assert result.exit_code == 0, result.output
    assert "2 tensors" in result.output
    assert torch.equal(load_head(tmp_path / "out", target).blocks[0].layers[0].weight, tensors["0.0.linear.weight"])


def test_shards_and_tied_tensors_become_one_file(tmp_path):
    """Tensors of all files, also those that share memory; the index of the pickles stays behind."""
    tied = torch.randn(4, 4)
    (tmp_path / "config.json").write_text("{}")
    (tmp_path / "pytorch_model.bin.index.json").write_text("{}")
    torch.save({"a": tied, "b": tied}, tmp_path / "pytorch_model-1.bin")
    torch.save({"state_dict": {"c": tied.T}}, tmp_path / "pytorch_model-2.bin")

    assert convert_pickles(tmp_path, tmp_path / "out") == 3
    tensors = load_file(tmp_path / "out" / "model.safetensors")
    assert torch.equal(tensors["b"], tied)
    assert torch.equal(tensors["c"], tied.T)
    assert sorted(file.name for file in (tmp_path / "out").iterdir()) == ["config.json", "model.safetensors"]


def test_a_pickle_that_would_run_code_is_refused(tmp_path, capsys):
    """It is never executed, and nothing is written."""
    published_medusa(tmp_path / "in")
    (tmp_path / "in" / "medusa_lm_head.pt").write_bytes(pickle.dumps({"0.1.weight": Harmful()}, protocol=2))

    with pytest.raises(ModelRefusedError, match="would run code"):
        convert_pickles(tmp_path / "in", tmp_path / "out")
    assert capsys.readouterr().out == ""
    assert not (tmp_path / "out").exists()


def test_what_cannot_be_converted_is_said(tmp_path):
    """Not tensors, a torn file, the same tensor twice, nothing there, a place that is taken."""
    folder = tmp_path / "in"
    published_medusa(folder)
    with pytest.raises(ModelUnavailableError, match="exists already"):
        convert_pickles(folder, folder)
    torch.save({"0.1.weight": torch.ones(2)}, folder / "more.pt")
    with pytest.raises(ModelRefusedError, match=r"'0\.1\.weight' is in another file"):
        convert_pickles(folder, tmp_path / "out")
    torch.save([torch.ones(2)], folder / "more.pt")
    with pytest.raises(ModelRefusedError, match="no collection of named tensors"):
        convert_pickles(folder, tmp_path / "out")
    (folder / "more.pt").write_bytes((folder / "medusa_lm_head.pt").read_bytes()[:200])
    with pytest.raises(ModelUnavailableError, match="cannot be read"):
        convert_pickles(folder, tmp_path / "out")
    (tmp_path / "empty").mkdir()
    with pytest.raises(ModelUnavailableError, match=r"no config\.json"):
        convert_pickles(tmp_path / "empty", tmp_path / "out")
    (tmp_path / "empty" / "config.json").write_text("{}")
    with pytest.raises(ModelUnavailableError, match="holds no pickles"):
        convert_pickles(tmp_path / "empty", tmp_path / "out")
