from pathlib import Path

import pytest
import torch

from paceline.modeling import packed_linear
from paceline.modeling.loader import load_model
from paceline.modeling.packed_linear import PackedLinear, pack_linears, packing_available
from tiny_models import save_tiny_model


@pytest.fixture
def linear():
    torch.manual_seed(0)
    return torch.nn.Linear(96, 160)


def test_the_operations_are_there():
    """This version of PyTorch has the private operations that packing rests on."""
    assert packing_available()


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("shape", [(5, 96), (1, 7, 96), (0, 96)])
def test_packed_is_linear(bias, shape):
    """The packed layer computes what the original does, for any leading shape, no rows included."""
    linear = torch.nn.Linear(96, 160, bias=bias)
    x = torch.randn(shape)

    with torch.inference_mode():
        assert torch.allclose(PackedLinear(linear)(x), linear(x), atol=1e-5)


@pytest.mark.parametrize("num_rows", [4, 5, 8, 17, 33, 100])
def test_a_row_has_the_same_bits_beside_any_others(linear, num_rows):
    """From four rows on, what a row gives does not depend on how many rows there are."""
    packed = PackedLinear(linear)
    x = torch.randn(256, 96)

    with torch.inference_mode():
        assert torch.equal(packed(x[3 : 3 + num_rows].contiguous()), packed(x)[3 : 3 + num_rows])


def test_every_linear_layer_is_replaced():
    """Nested layers too; other modules stay as they are, and the original weights are given up."""
    model = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.Sequential(torch.nn.Linear(8, 4), torch.nn.ReLU()))
    x = torch.randn(5, 8)
    with torch.inference_mode():
        before = model(x)
        assert pack_linears(model) == 2
        assert torch.allclose(model(x), before, atol=1e-6)

    assert not any(isinstance(module, torch.nn.Linear) for module in model.modules())
    assert not list(model.parameters())


def test_without_the_operations_the_model_stays_as_it_is(linear, monkeypatch):
    """A build that cannot pack runs unpacked."""
    monkeypatch.setattr(packed_linear, "packing_available", lambda: False)
    model = torch.nn.Sequential(linear)

    assert pack_linears(model) == 0
    assert model[0] is linear


@pytest.mark.skipif(not Path("/proc/self/maps").exists(), reason="needs Linux")
def test_a_loaded_model_lets_go_of_its_file(tmp_path):
    """Packed weights are not kept a second time through the mapped file."""
    loaded = load_model(save_tiny_model(tmp_path), dtype="float32")

    assert loaded.model is not None
    assert str(tmp_path) not in Path("/proc/self/maps").read_text()
