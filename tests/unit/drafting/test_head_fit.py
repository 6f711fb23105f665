"""Heads are held against their target by configurations alone."""

import json
from pathlib import Path
from typing import Any

import pytest

from paceline.config.load import config_from_mapping
from paceline.config.schema import DeploymentConfig
from paceline.drafting.head_fit import check_heads
from paceline.errors import ConfigError

_SIZES = {"hidden_size": 64, "vocab_size": 320}
_TARGET = {"model_type": "llama", "num_hidden_layers": 2, **_SIZES}
_EAGLE = {**_TARGET, "num_hidden_layers": 1}
_HEADS: dict[str, tuple[str, dict[str, Any]]] = {
    "eagle": ("eagle", _EAGLE),
    "eagle-in-vllm": ("eagle", {"model_type": "eagle", "model": _EAGLE}),
    "eagle3": ("eagle", {"speculators_model_type": "eagle3", "transformer_layer_config": _EAGLE}),
    "mtp": ("mtp", {**_TARGET, "num_nextn_predict_layers": 1}),
    "medusa": ("medusa", {"model_type": "medusa", "num_heads": 3, **_SIZES}),
}


def _find(folder: Path, **configs: dict[str, Any]):
    """Finds folders by name, each with its ``config.json``."""
    for name, config in configs.items():
        (folder / name).mkdir()
        (folder / name / "config.json").write_text(json.dumps(config))
    return lambda source, _: folder / source if source in configs else None


def _config(method: str, model: str | None = "head", **more: Any) -> DeploymentConfig:
    section = {"method": method, **({} if model is None else {"model": model})}
    return config_from_mapping({"model": {"source": "target"}, "drafters": {"group": section, **more}})


@pytest.mark.parametrize("layout", _HEADS)
def test_a_head_made_for_the_target_passes(layout: str, tmp_path: Path) -> None:
    """In every layout that is read; other methods are not looked at."""
    method, head = _HEADS[layout]

    assert check_heads(_config(method, ngram={"method": "ngram"}), _find(tmp_path, target=_TARGET, head=head)) == []


@pytest.mark.parametrize("field", _SIZES)
@pytest.mark.parametrize("layout", _HEADS)
def test_a_head_for_another_model_is_refused(layout: str, field: str, tmp_path: Path) -> None:
    """The sentence names the group, the field and both numbers."""
    method, head = _HEADS[layout]
    target = _TARGET | {field: 576}

    with pytest.raises(ConfigError, match=f"group 'group'.*another model.*'{field}' is {_SIZES[field]}.*is 576"):
        check_heads(_config(method), _find(tmp_path, target=target, head=head))


@pytest.mark.parametrize(("method", "layout"), [("eagle", "medusa"), ("mtp", "eagle"), ("medusa", "mtp")])
def test_another_methods_head_is_refused(method: str, layout: str, tmp_path: Path) -> None:
    """The sentence names both methods."""
    kind, head = _HEADS[layout]

    with pytest.raises(ConfigError, match=f"has method {method}, but .* holds a head for {kind}"):
        check_heads(_config(method), _find(tmp_path, target=_TARGET, head=head))


def test_mtp_without_a_model_needs_a_target_that_brings_modules(tmp_path: Path) -> None:
    """A target's own modules need no other file, and a target without them is named."""
    with pytest.raises(ConfigError, match="brings no MTP modules"):
        check_heads(_config("mtp", None), _find(tmp_path, target=_TARGET))

    (tmp_path / "own").mkdir()
    find = _find(tmp_path / "own", target=_TARGET | {"num_nextn_predict_layers": 1})
    assert check_heads(_config("mtp", None), find) == []


def test_what_is_not_here_is_told(tmp_path: Path) -> None:
    """Nothing is downloaded for a look, so whoever asks is told which groups have not been looked at."""
    assert check_heads(_config("eagle"), _find(tmp_path, target=_TARGET)) == ["group"]
    assert check_heads(_config("mtp", None), _find(tmp_path)) == ["group"]
