import pytest

from paceline.modeling.weights_version import weights_version
from tiny_models import save_tiny_model


@pytest.fixture
def folder(tmp_path):
    return save_tiny_model(tmp_path / "one", seed=1)


def test_the_same_weights_have_the_same_version_anywhere(folder, tmp_path):
    """The version depends on content, not on where the folder lies."""
    assert weights_version(folder) == weights_version(save_tiny_model(tmp_path / "two", seed=1))


def test_other_weights_have_another_version(folder, tmp_path):
    """Equal shapes do not hide another training."""
    assert weights_version(folder) != weights_version(save_tiny_model(tmp_path / "two", seed=2))


def test_config_and_layers_count(folder):
    """The same weights under another config, or cut off, are another model."""
    before = weights_version(folder)
    assert weights_version(folder, 1) != before
    config = folder / "config.json"
    config.write_text(config.read_text().replace("10000", "20000"))

    assert weights_version(folder) != before
