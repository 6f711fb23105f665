import pytest
import yaml
from typer.testing import CliRunner

from paceline.cli.config import app
from paceline.config.load import config_from_mapping
from paceline.errors import ConfigError


@pytest.fixture
def config_file(tmp_path):
    path = tmp_path / "mine.yaml"
    path.write_text("verifier: block\ndrafters: {words: {method: ngram}}\n")
    return path


def test_validate_sums_up_a_valid_file(config_file):
    """A valid file is confirmed with its model, verifier and drafter groups."""
    result = CliRunner().invoke(app, ["validate", str(config_file)])

    assert result.exit_code == 0
    assert "model smollm2-135m, verifier block, drafters words (ngram, remote)" in result.output


def test_validate_fails_on_a_mistake(config_file):
    """A file with a mistake raises the error that the command line turns into exit code 2."""
    config_file.write_text("verifyer: block\n")

    result = CliRunner().invoke(app, ["validate", str(config_file)])

    assert isinstance(result.exception, ConfigError)
    assert "did you mean 'verifier'?" in str(result.exception)


def test_validate_refuses_a_head_for_another_model(tmp_path):
    """What two config.json tell is known before anything is deployed; a head that is not here is named."""
    for name, size in (("target", 576), ("head", 64)):
        (tmp_path / name).mkdir()
        (tmp_path / name / "config.json").write_text(f'{{"hidden_size": {size}, "vocab_size": 320}}')
    file = tmp_path / "mine.yaml"
    content = {"model": {"source": "target"}, "drafters": {"far": {"method": "eagle", "model": "head"}}}
    file.write_text(yaml.safe_dump(content))

    refused = CliRunner().invoke(app, ["validate", str(file)])
    content["drafters"]["far"]["model"] = "/on/the/cluster"
    file.write_text(yaml.safe_dump(content))
    passed = CliRunner().invoke(app, ["validate", str(file)])

    assert isinstance(refused.exception, ConfigError)
    assert "group 'far'" in str(refused.exception)
    assert "'hidden_size' is 64" in str(refused.exception)
    assert passed.exit_code == 0
    assert "not on this machine: far" in passed.output


def test_show_prints_a_file_that_loads_to_the_same(config_file):
    """What `show` prints has every default filled in and means the same as the file."""
    result = CliRunner().invoke(app, ["show", str(config_file)])

    shown = yaml.safe_load(result.output)
    assert shown["gateway"]["http_port"] == 8000
    assert config_from_mapping(shown) == config_from_mapping(yaml.safe_load(config_file.read_text()))
