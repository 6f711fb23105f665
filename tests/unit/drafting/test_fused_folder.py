"""An EAGLE-3 head is the same for the target that fuses for it and for the group that drafts with it."""

import pytest
import torch
from transformers import AutoModelForCausalLM

from paceline.config.schema import DeploymentConfig
from paceline.drafting.wanted_features import fused_folder, wanted_features
from paceline.modeling import resolve
from tiny_heads import save_eagle3
from tiny_models import save_tiny_model


@pytest.fixture
def head(tmp_path, monkeypatch):
    """A head that the hub has in one revision only."""
    target = save_tiny_model(tmp_path / "target")
    folder = save_eagle3(tmp_path / "head@2", AutoModelForCausalLM.from_pretrained(target, dtype=torch.float32))
    known = {("org/head", "abc"): folder}
    monkeypatch.setattr(resolve, "fetch_from_hub", lambda hub_id, revision: known[hub_id, revision])
    return folder


def test_a_pinned_revision_reaches_the_target(head):
    """A target that fused for the newest revision would be refused by drafters of the pinned one."""
    group = {"method": "eagle", "model": "org/head", "revision": "abc"}
    (wanted,) = wanted_features(DeploymentConfig.model_validate({"drafters": {"heads": group}}))

    assert wanted == "org/head@abc"
    assert fused_folder(wanted) == head


def test_a_folder_may_have_any_name(head):
    """What is a folder is never taken apart."""
    assert fused_folder(str(head)) == head
