"""What is looked at on this machine before a deployment starts."""

import json

import pytest

from paceline.config.load import config_from_mapping
from paceline.errors import ConfigError, ModelUnavailableError
from paceline_serve.model_files import fetch_models


def _config(folder, **sections):
    for name, content in sections.items():
        (folder / name).mkdir()
        (folder / name / "config.json").write_text(json.dumps(content))
    group = {"method": "medusa", "model": str(folder / "head")}
    return config_from_mapping({"model": {"source": str(folder / "target")}, "drafters": {"wide": group}})


def test_a_head_for_another_model_stops_the_start(tmp_path):
    """`paceline serve` says so at once, before Ray starts and a model is loaded."""
    head = {"model_type": "medusa", "num_heads": 3, "hidden_size": 64, "vocab_size": 300}
    config = _config(tmp_path, target={"hidden_size": 64, "vocab_size": 320}, head=head)

    with pytest.raises(ConfigError, match=r"group 'wide'.*'vocab_size' is 300, but the target's is 320"):
        fetch_models(config, lambda *_: None)


def test_a_head_that_is_not_there_stops_the_start(tmp_path):
    """A folder that does not exist is named."""
    with pytest.raises(ModelUnavailableError, match=r"no folder .*head"):
        fetch_models(_config(tmp_path, target={}), lambda *_: None)
