"""Training of heads by several workers of a Ray cluster."""

import importlib.util
import json
import sys
from types import ModuleType, SimpleNamespace

import pytest
import typer
from typer.testing import CliRunner

from paceline.errors import ConfigError, SetupError
from paceline.training.record import read_record
from paceline_serve import train_command
from paceline_serve.commands import register
from tiny_models import save_tiny_model
from tiny_tokenizers import byte_level

HAS_RAY_TRAIN = all(importlib.util.find_spec(name) for name in ("pyarrow", "pandas", "tensorboardX"))


@pytest.fixture
def training(tmp_path):
    """Arguments of a small training."""
    target = save_tiny_model(tmp_path / "target", vocab_size=320)
    byte_level().save_pretrained(target)
    data = tmp_path / "answers.jsonl"
    lines = [
        {"prompt_ids": [1, index % 250, 7], "answer_ids": [100 + index % 90, 9, 30, 2], "temperature": 0.0}
        for index in range(200)
    ]
    data.write_text("\n".join(map(json.dumps, lines)))
    options = ["--vocabulary", "64", "--epochs", "2", "--batch-tokens", "128", "--check-every", "4", "--threads", "1"]
    return ["eagle", str(data), "-o", str(tmp_path / "head"), "--model", str(target), *options]


class OneWorker:
    """Ray's trainer, but that the only worker is this process."""

    def __init__(self, loop, *, train_loop_config, scaling_config):
        self.made.append(scaling_config)
        self._run = lambda: loop(train_loop_config)

    def fit(self):
        self._run()


@pytest.fixture
def scaling(monkeypatch):
    """What workers were asked for, from a stand-in for Ray."""
    OneWorker.made = []
    ray, train, torch = ModuleType("ray"), ModuleType("ray.train"), ModuleType("ray.train.torch")
    ray.is_initialized, ray.init = lambda: False, lambda address: None
    train.ScalingConfig, torch.TorchTrainer = SimpleNamespace, OneWorker
    for module in (ray, train, torch):
        monkeypatch.setitem(sys.modules, module.__name__, module)
    return OneWorker.made


def test_workers_run_the_command_that_follows(training, scaling, tmp_path):
    """Options before it are Ray's, those behind it the training's."""
    app = typer.Typer()
    register(app)
    result = CliRunner().invoke(app, ["train-on-ray", "--workers", "3", "--cpu", *training])

    assert result.exit_code == 0, result.output
    assert (scaling[0].num_workers, scaling[0].use_gpu) == (3, False)
    assert read_record(tmp_path / "head").method == "eagle"


def test_what_cannot_be_run_is_said(monkeypatch):
    """Another command, no command, no Ray Train."""
    for arguments in ([], ["generate"], ["--unroll", "2"]):
        with pytest.raises(ConfigError, match="eagle, mtp, medusa"):
            train_command.train(arguments, num_workers=1, use_gpu=False, address=None)
    monkeypatch.setitem(sys.modules, "ray.train", None)
    with pytest.raises(SetupError, match="pip install"):
        train_command.train(["eagle"], num_workers=1, use_gpu=False, address=None)


@pytest.mark.full
@pytest.mark.serve
@pytest.mark.skipif(not HAS_RAY_TRAIN, reason="Ray Train needs pyarrow, pandas and tensorboardX")
def test_two_workers_train_one_head(training, tmp_path):
    """They halve the steps, and one of them writes; on a Ray of this machine."""
    ray = pytest.importorskip("ray")

    ray.init(num_cpus=2, include_dashboard=False)
    try:
        train_command.train(training, num_workers=2, use_gpu=False, address=None)
    finally:
        ray.shutdown()
    two = [json.loads(line) for line in (tmp_path / "head.work" / "metrics.jsonl").read_text().splitlines()]
    training[training.index(str(tmp_path / "head"))] = str(tmp_path / "alone")
    train_command.train_worker({"arguments": training})
    one = [json.loads(line) for line in (tmp_path / "alone.work" / "metrics.jsonl").read_text().splitlines()]

    assert [line["step"] for line in two] == list(range(1, len(two) + 1))
    assert len(two) == len(one) // 2
    assert two[-1]["token_passes"] == pytest.approx(one[-1]["token_passes"], rel=0.1)
    assert read_record(tmp_path / "head").token_passes == two[-1]["token_passes"]
