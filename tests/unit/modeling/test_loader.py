import json

import pytest
import torch

from paceline.errors import ModelRefusedError, ModelUnavailableError
from paceline.modeling.loader import load_config, load_model
from tiny_models import save_tiny_model


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return save_tiny_model(tmp_path_factory.mktemp("llama"), "llama")


def edit(folder, name, **changes):
    path = folder / name
    path.write_text(json.dumps({**json.loads(path.read_text()), **changes}))


def test_facts_are_those_of_the_model(folder):
    """The record has what pools, drafters and handshakes need."""
    loaded = load_model(folder, dtype="float32")

    assert (loaded.vocab_size, loaded.hidden_size, loaded.num_layers) == (128, 64, 2)
    assert (loaded.num_kv_heads, loaded.head_dim, loaded.context_length) == (2, 16, 512)
    assert loaded.dtype == torch.float32


def test_the_model_is_for_inference_only(folder):
    """No weight asks for a gradient and dropout is off."""
    model = load_model(folder, dtype="float32").model

    assert not model.training
    assert not any(parameter.requires_grad for parameter in model.parameters())


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_weights_have_the_precision_asked_for(folder, dtype):
    """The folder's own precision does not decide."""
    model = load_model(folder, dtype=dtype).model

    assert {parameter.dtype for parameter in model.parameters()} == {getattr(torch, dtype)}


def test_two_models_share_no_config(folder):
    """A drafter cut from the target's folder does not cut the target."""
    whole = load_model(folder, dtype="float32")
    cut = load_model(folder, dtype="float32", num_layers=1)

    assert whole.model.config is not cut.model.config
    assert (whole.model.config.num_hidden_layers, cut.num_layers) == (2, 1)
    assert whole.weights_version != cut.weights_version


@pytest.mark.parametrize("num_layers", [0, 3])
def test_a_cut_outside_the_stack_is_refused(folder, num_layers):
    """num_layers lies between 1 and the model's own number."""
    with pytest.raises(ModelRefusedError, match="has 2 layers"):
        load_model(folder, dtype="float32", num_layers=num_layers)


def test_a_missing_gpu_is_told_before_anything_is_loaded(folder, monkeypatch):
    """The message says which setting to change."""
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)

    with pytest.raises(ModelRefusedError, match="set device to cpu"):
        load_model(folder, dtype="float32", device="cuda")


def test_a_folder_without_config_is_unavailable(tmp_path):
    """The message names the file that is missing."""
    with pytest.raises(ModelUnavailableError, match=r"config\.json"):
        load_model(tmp_path, dtype="float32")


def test_damaged_weights_are_unavailable(tmp_path):
    """A cut-off download is reported, not raised as it comes."""
    folder = save_tiny_model(tmp_path)
    weights = folder / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:1000])

    with pytest.raises(ModelUnavailableError, match="could not be loaded"):
        load_model(folder, dtype="float32")


def test_missing_weights_are_never_made_up(tmp_path):
    """A folder that lacks a layer's weights is refused, not completed with random numbers."""
    folder = save_tiny_model(tmp_path, num_hidden_layers=1)
    edit(folder, "config.json", num_hidden_layers=2)

    with pytest.raises(ModelUnavailableError, match=r"lacks .* weights"):
        load_model(folder, dtype="float32")


def test_code_beside_the_weights_is_never_imported(tmp_path):
    """An unknown architecture with code of its own is refused and its file not run."""
    folder = save_tiny_model(tmp_path)
    marker = tmp_path / "it-ran"
    (folder / "evil.py").write_text(f"open({str(marker)!r}, 'w')\nclass Config: ...\nclass Model: ...\n")
    edit(
        folder,
        "config.json",
        model_type="evil",
        auto_map={"AutoConfig": "evil.Config", "AutoModelForCausalLM": "evil.Model"},
    )

    with pytest.raises(ModelRefusedError, match="evil"):
        load_model(folder, dtype="float32")
    assert not marker.exists()


def test_each_call_gives_a_new_config(folder):
    """Callers may change what they get."""
    assert load_config(folder) is not load_config(folder)
