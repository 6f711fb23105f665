from pathlib import Path

import pytest
import torch

from paceline.kernels.decoder_layers import decoder_kernels
from paceline.modeling import packed_linear
from paceline.modeling.loader import load_model
from paceline.modeling.onednn_linear import OneDnnLinear
from paceline.modeling.packed_linear import PackedLinear, pack_linears
from tiny_models import save_tiny_model


def packed(linear):
    return PackedLinear(linear, decoder_kernels())


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("shape", [(5, 96), (1, 7, 96), (0, 96), (40, 96)])
def test_packed_is_linear(bias, shape, dtype):
    """The packed layer computes what the original does, for any leading shape, no rows included."""
    linear = torch.nn.Linear(96, 150, bias=bias, dtype=dtype)  # 150: the last panel is not full
    x = torch.randn(shape, dtype=dtype)

    with torch.inference_mode():
        assert torch.allclose(packed(linear)(x), linear(x), atol=1e-5 if dtype is torch.float32 else 2e-2)


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_row_has_the_same_bits_beside_any_others(dtype, threads):
    """What a row gives does not depend on how many rows there are, nor on the number of threads."""
    torch.manual_seed(0)
    linear = packed(torch.nn.Linear(96, 160, dtype=dtype))
    x = torch.randn(200, 96, dtype=dtype)
    before = torch.get_num_threads()
    alone = torch.cat([linear(row.unsqueeze(0)) for row in x])
    try:
        torch.set_num_threads(threads)
        for num_rows in (*range(1, 30), 64, 100, 200):
            assert torch.equal(linear(x[:num_rows]), alone[:num_rows]), num_rows
    finally:
        torch.set_num_threads(before)


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


def test_without_a_compiler_onednn_serves(monkeypatch):
    """A layer is packed by oneDNN then, and computes the same."""
    monkeypatch.setattr(packed_linear, "decoder_kernels", lambda: None)
    linear = torch.nn.Linear(96, 160)
    model = torch.nn.Sequential(linear)
    x = torch.randn(4, 96)

    assert pack_linears(model) == 1
    assert isinstance(model[0], OneDnnLinear)
    with torch.inference_mode():
        assert torch.allclose(model(x), linear(x), atol=1e-5)


def test_without_both_the_model_stays_as_it_is(monkeypatch):
    """A build that cannot pack runs unpacked."""
    monkeypatch.setattr(packed_linear, "decoder_kernels", lambda: None)
    monkeypatch.setattr(packed_linear, "onednn_packs", lambda _: False)
    linear = torch.nn.Linear(8, 8)
    model = torch.nn.Sequential(linear)

    assert pack_linears(model) == 0
    assert model[0] is linear


def test_an_odd_width_in_half_precision_is_left_to_onednn():
    """Panels hold two bfloat16 at a time."""
    model = torch.nn.Sequential(torch.nn.Linear(7, 8, dtype=torch.bfloat16))
    pack_linears(model)

    assert isinstance(model[0], OneDnnLinear)


@pytest.mark.skipif(not Path("/proc/self/maps").exists(), reason="needs Linux")
@pytest.mark.parametrize("variant", ["llama", "granite"])
def test_a_loaded_model_lets_go_of_its_file(tmp_path, variant):
    """Packed weights are not kept a second time through the mapped file."""
    loaded = load_model(save_tiny_model(tmp_path, variant), dtype="float32")

    assert loaded.network is not None
    assert str(tmp_path) not in Path("/proc/self/maps").read_text()
