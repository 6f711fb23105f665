"""Training of heads from the command line."""

import json

import pytest
from typer.testing import CliRunner

from paceline.cli.train import app
from paceline.training.record import read_record
from tiny_models import save_tiny_model
from tiny_tokenizers import byte_level


@pytest.fixture
def target(tmp_path):
    folder = save_tiny_model(tmp_path / "target", vocab_size=320)
    byte_level().save_pretrained(folder)
    return folder


@pytest.fixture
def data(tmp_path):
    path = tmp_path / "answers.jsonl"
    lines = [
        {"prompt_ids": [1, index % 250, 7], "answer_ids": [100 + index % 90, 9, 30, 2], "temperature": 0.0}
        for index in range(200)
    ]
    path.write_text("\n".join(map(json.dumps, lines)))
    return path


@pytest.mark.parametrize(
    "arguments",
    [
        ["eagle", "--unroll", "3", "--no-feature"],
        ["mtp", "--modules", "2", "--unshifted"],
        ["mtp", "--parallel"],
        ["medusa", "--heads", "2", "--random-init"],
    ],
)
def test_a_head_its_record_and_its_course_come_out(arguments, target, data, tmp_path):
    """Every method with options of its own; the record holds what makes the training another one."""
    common = [str(data), "-o", str(tmp_path / "head"), "--model", str(target), "--vocabulary", "64", "--threads", "1"]
    result = CliRunner().invoke(app, [*arguments, *common, "--epochs", "1", "--check-every", "1"])
    record = read_record(tmp_path / "head")

    assert result.exit_code == 0, result.output
    assert (tmp_path / "head" / "model.safetensors").exists()
    assert (tmp_path / "head.work" / "metrics.jsonl").exists()
    assert record.method == arguments[0]
    assert record.options["no_feature"] == ("--no-feature" in arguments)
    assert record.options["unshifted"] == ("--unshifted" in arguments)
    assert record.options["random_init"] == ("--random-init" in arguments)
    assert record.options["unroll"] == (3 if "--unroll" in arguments else 2)


def test_trainings_can_share_their_features(target, data, tmp_path):
    """The second one computes none."""
    common = [str(data), "--model", str(target), "--vocabulary", "64", "--features", str(tmp_path / "features")]
    more = ["--epochs", "1", "--threads", "1"]
    assert CliRunner().invoke(app, ["medusa", *common, "-o", str(tmp_path / "a"), *more]).exit_code == 0
    before = (tmp_path / "features" / "features.bin").stat()
    assert CliRunner().invoke(app, ["eagle", *common, "-o", str(tmp_path / "b"), *more]).exit_code == 0

    after = (tmp_path / "features" / "features.bin").stat()
    assert (after.st_mtime_ns, after.st_size) == (before.st_mtime_ns, before.st_size)
    assert not (tmp_path / "b.work" / "features").exists()
