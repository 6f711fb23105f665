"""The target's part of an EAGLE-3 head: which layers, which weight, and one name for both."""

import pytest
import torch
from safetensors.torch import load_file

from paceline.errors import ModelRefusedError
from paceline.modeling.heads.checkpoint import load_head
from paceline.modeling.heads.fusion import load_fusion
from paceline.modeling.heads.target_weights import weights_of_model
from tiny_heads import change_head, save_eagle3, tiny_target

_LAYERS = "eagle_aux_hidden_state_layer_ids"


@pytest.fixture(scope="module")
def model():
    return tiny_target()


@pytest.mark.parametrize("layout", ["speculators", "authors"])
def test_the_weight_and_the_default_layers(tmp_path, model, layout):
    """The inputs of layers 2, n/2 and n-3, where the checkpoint says nothing."""
    fusion = load_fusion(save_eagle3(tmp_path, model, layout=layout))

    assert torch.equal(fusion.weight, load_file(tmp_path / "model.safetensors")["fc.weight"])
    assert fusion.layers(30) == (2, 15, 27)
    assert (fusion.feature.kind, fusion.feature.size) == (f"fused:{fusion.fingerprint}", 64)


def test_layers_that_the_checkpoint_names(tmp_path, model):
    """In any order; their inputs are concatenated in that of the layers."""
    assert load_fusion(save_eagle3(tmp_path, model, **{_LAYERS: [9, 1, 4]})).layers(10) == (1, 4, 9)


def test_the_fingerprint_tells_fusions_apart_and_heads_share_it(tmp_path, model):
    """Same weight and layers, same name, also for the head; another weight or other layers, another name."""
    first = save_eagle3(tmp_path / "a", model)
    same = save_eagle3(tmp_path / "b", model, layout="authors")
    layers = save_eagle3(tmp_path / "c", model, **{_LAYERS: [1, 2, 3]})
    weight = save_eagle3(tmp_path / "d", model)
    change_head(weight, edit=lambda tensors: tensors["fc.weight"].mul_(2))

    assert load_fusion(same).fingerprint == load_fusion(first).fingerprint
    assert len({load_fusion(folder).fingerprint for folder in (first, layers, weight)}) == 3
    assert load_head(first, weights_of_model(model)).spec.feature == load_fusion(first).feature


@pytest.mark.parametrize("layer_ids", [[], "1, 2, 3", [1, 2.5, 3], [True, 2, 3]])
def test_layers_must_be_numbers(tmp_path, model, layer_ids):
    """What cannot name layers is refused; an empty list is no list."""
    if layer_ids == []:
        assert load_fusion(save_eagle3(tmp_path, model, **{_LAYERS: layer_ids})).layer_ids is None
        return
    with pytest.raises(ModelRefusedError, match="must be a list of layer numbers"):
        load_fusion(save_eagle3(tmp_path, model, **{_LAYERS: layer_ids}))


@pytest.mark.parametrize("num_layers", [2, 4])
def test_a_target_with_too_few_layers(tmp_path, model, num_layers):
    """Said when the target is known."""
    with pytest.raises(ModelRefusedError, match=f"a target of {num_layers} layers does not have"):
        load_fusion(save_eagle3(tmp_path, model)).layers(num_layers)


@pytest.mark.parametrize("switch", ["norm_before_fc", "fc_norm", "norm_output"])
def test_switches_that_would_change_the_arithmetic(tmp_path, model, switch):
    """A checkpoint that asks for more than is computed here is refused, never run wrong."""
    with pytest.raises(ModelRefusedError, match=f"'{switch}'"):
        load_fusion(save_eagle3(tmp_path, model, **{switch: True}))
