import sys
from pathlib import Path

import pytest

from paceline.config.locate import find_config, find_shipped, shipped_names
from paceline.errors import ConfigError


@pytest.fixture(params=["wheel", "repository"])
def shipped(request, tmp_path, monkeypatch) -> Path:
    """A paceline_serve package with one config, laid out as in a wheel or as in the repository."""
    parent = tmp_path / ("deployments" if request.param == "repository" else "site-packages")
    package = parent / "paceline_serve"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text("raise RuntimeError('finding files must not run the package')")
    configs = (parent if request.param == "repository" else package) / "configs"
    configs.mkdir()
    (configs / "local-cpu.yaml").write_text("verifier: coupled\n")
    monkeypatch.setattr(sys, "path", [str(parent)])
    monkeypatch.setattr(sys, "meta_path", [finder for finder in sys.meta_path if "Editable" not in str(finder)])
    monkeypatch.delitem(sys.modules, "paceline_serve", raising=False)
    return configs


@pytest.mark.parametrize("name", ["local-cpu", "local-cpu.yaml"])
def test_shipped_configs_are_found_in_both_layouts(shipped, name):
    """A shipped config is found by name, with or without its ending, without importing the package."""
    assert find_config(name) == shipped / "local-cpu.yaml"
    assert find_shipped("configs", "local-cpu.yaml") == shipped / "local-cpu.yaml"
    assert shipped_names("configs") == ["local-cpu.yaml"]
    assert shipped_names("models") == []


def test_a_file_wins_over_a_shipped_name(shipped, tmp_path, monkeypatch):
    """A file in the working folder is taken before a shipped config of the same name."""
    (tmp_path / "local-cpu.yaml").write_text("verifier: block\n")
    monkeypatch.chdir(tmp_path)

    assert find_config("local-cpu.yaml") == Path("local-cpu.yaml")


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("local-cpo", "Did you mean 'local-cpu.yaml'?"),
        ("zzz", "There are: local-cpu.yaml"),
        ("sub/local-cpu.yaml", "Check the path"),
        (".", "is a folder"),
    ],
)
def test_a_name_that_is_not_found_gets_a_hint(shipped, name, hint):
    """An unknown name lists what ships; a path is named as a path."""
    with pytest.raises(ConfigError) as caught:
        find_config(name)

    assert hint in str(caught.value)


def test_names_cannot_reach_outside(shipped):
    """A name with '..' finds nothing, whatever lies there."""
    (shipped.parent / "secret.yaml").write_text("")

    with pytest.raises(ConfigError):
        find_shipped("configs", "../secret.yaml")


def test_a_wheel_may_lie_in_a_folder_called_deployments(shipped, tmp_path, monkeypatch):
    """What the package carries itself wins, wherever it was installed."""
    package = tmp_path / "deployments" / "paceline_serve"
    (package / "configs").mkdir(parents=True, exist_ok=True)
    (package / "__init__.py").write_text("")
    (package / "configs" / "own.yaml").write_text("verifier: block\n")
    monkeypatch.setattr(sys, "path", [str(package.parent)])

    assert find_config("own") == package / "configs" / "own.yaml"
