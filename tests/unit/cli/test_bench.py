"""The commands of `paceline bench`."""

import json

import pytest
from typer.testing import CliRunner

from paceline.bench.random_model import save_random_model
from paceline.cli.main import build_app
from paceline.errors import ConfigError

RUNNER = CliRunner()


def _run(*arguments):
    return RUNNER.invoke(build_app(), ["bench", *arguments])


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    """A tiny model folder."""
    return str(save_random_model(tmp_path_factory.mktemp("model")))


@pytest.fixture
def prompts(tmp_path):
    """Two prompts of two categories."""
    path = tmp_path / "prompts.jsonl"
    path.write_text('{"category": "chat", "prompt": "a"}\n{"category": "code", "prompt": "b"}\n')
    return str(path)


def test_a_run_prints_tables_and_writes_files(model, prompts, tmp_path):
    """Tables on the terminal, JSON and Markdown in files, progress on standard error."""
    json_file, text_file = tmp_path / "out" / "run.json", tmp_path / "out" / "run.md"
    result = _run(
        *("run", "--in-process", model, "--prompts", prompts, "--max-tokens", "4", "--blocks", "2"),
        *("-o", str(json_file), "-o", str(text_file)),
    )

    assert result.exit_code == 0
    assert "tokens/s" in result.stdout
    assert "block 2 of 2" in result.stderr
    assert json.loads(json_file.read_text())["data"]["variants"]["a"]["load"]["completed"] == 4
    assert "## Provenance" in text_file.read_text()


def test_json_is_all_that_is_printed_where_asked_for(model, prompts):
    """A program reads standard output; categories can be chosen."""
    result = _run(
        "run", "--in-process", model, "--prompts", prompts, "--category", "code", "--max-tokens", "2", "--json"
    )

    assert result.exit_code == 0
    assert set(json.loads(result.stdout)["data"]["variants"]["a"]["speed"]) == {"headline", "code", "looping"}


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ([], "exactly one"),
        (["--http", "http://x", "--grpc", "x:1"], "exactly one"),
        (["--in-process", "x", "-o", "run.csv"], "run.csv"),
        (["--in-process", "x", "--b", "", "--blocks", "3"], "at least 5 blocks"),
        (["--in-process", "x", "--a", "speed=9"], "speed=9"),
        (["--in-process", "x", "--category", "none"], "no prompts"),
        (["--in-process", "nowhere"], "nowhere"),
        (["--in-process", "x", "--prompts", "no-such-file.jsonl"], "no-such-file.jsonl"),
    ],
)
def test_mistakes_are_found_before_anything_is_measured(arguments, said):
    """Each with what is wrong."""
    result = _run("run", *arguments)

    assert isinstance(result.exception, ConfigError)
    assert said in str(result.exception)


@pytest.mark.parametrize("command", ["pass", "gpu", "memory"])
def test_a_picture_that_nobody_can_draw_is_refused_before_the_measurement(command):
    """Only runs are drawn."""
    result = _run(command, "-o", "result.png")

    assert isinstance(result.exception, ConfigError)
    assert "result.png" in str(result.exception)


def test_a_missing_matplotlib_is_found_before_the_measurement(monkeypatch):
    """Figures that were measured are never lost to the picture of them."""
    monkeypatch.setattr("paceline.cli.bench_output.find_spec", lambda _: None)
    result = _run("run", "--in-process", "nowhere", "-o", "run.json", "-o", "run.png")

    assert "paceline[bench]" in str(result.exception)


def test_a_device_without_cuda_is_one_sentence(monkeypatch):
    """And the way to try it anyway."""
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    result = _run("gpu")

    assert isinstance(result.exception, ConfigError)
    assert "--tiny" in str(result.exception)


def test_growing_memory_is_exit_code_1(monkeypatch):
    """The result is printed all the same."""
    assert _run("memory", "--requests", "40", "--base-after", "20", "--most-growth", "-2").exit_code == 1
    assert "Resident memory" in _run("memory", "--requests", "20", "--most-growth", "9").stdout
