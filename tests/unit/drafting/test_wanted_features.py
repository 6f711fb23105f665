"""A target keeps what the groups of its deployment need, wherever they run, and nothing more."""

import pytest
import torch
from transformers import AutoModelForCausalLM

from paceline.config.schema import DeploymentConfig
from paceline.drafting.wanted_features import wanted_features
from tiny_heads import save_eagle3, save_tiny_head
from tiny_models import save_tiny_model


@pytest.fixture(scope="module")
def heads(tmp_path_factory):
    """Folders of heads by kind."""
    folder = tmp_path_factory.mktemp("heads")
    model = AutoModelForCausalLM.from_pretrained(save_tiny_model(folder / "target"), dtype=torch.float32)
    made = {kind: save_tiny_head(folder / kind, kind, model) for kind in ("eagle", "medusa")}
    return {**made, "eagle3": save_eagle3(folder / "eagle3", model)}


def wanted(engine=None, **groups):
    return wanted_features(DeploymentConfig.model_validate({"engine": engine or {}, "drafters": groups}))


def test_groups_without_heads_need_none():
    """Nothing is kept for n-grams, and nothing without groups."""
    assert wanted() == wanted(copy={"method": "ngram"}) == ()


@pytest.mark.parametrize("place", ["remote", "in_process"])
def test_each_feature_is_kept_once(heads, place):
    """Heads on the last hidden state share it, native MTP modules too; an EAGLE-3 head is named for what it fuses."""
    sections = {
        "a": {"method": "medusa", "model": str(heads["medusa"])},
        "b": {"method": "eagle", "model": str(heads["eagle"])},
        "c": {"method": "eagle", "model": str(heads["eagle3"])},
        "d": {"method": "mtp"},
    }
    groups = {name: {**section, "place": place} for name, section in sections.items()}

    assert wanted(**groups) == ("last", str(heads["eagle3"]))


def test_what_the_configuration_says_comes_first(heads):
    """For groups that are to come later, or to keep none."""
    group = {"method": "eagle", "model": str(heads["eagle3"])}

    assert wanted({"features": ["last"]}, head=group) == ("last",)
    assert wanted({"features": []}, head=group) == ()
