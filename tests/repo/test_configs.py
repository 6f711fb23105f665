import pytest

from paceline.config.load import load_config
from repository import ROOT

_CONFIGS = sorted((ROOT / "deployments" / "configs").glob("*.yaml"))


@pytest.mark.parametrize("path", _CONFIGS, ids=lambda path: path.name)
def test_shipped_configs_are_valid(path):
    """Every config that ships loads, and opens its doors to this machine only."""
    config = load_config(path)

    assert config.gateway.host == "127.0.0.1"


def test_the_default_config_is_there():
    """`paceline serve` without a config takes local-cpu.yaml."""
    assert "local-cpu.yaml" in [path.name for path in _CONFIGS]
