import pytest
import torch
from torch.nn.functional import linear, silu

from paceline.kernels.decoder_layers import Epilogue, decoder_kernels
from paceline.modeling.packed_weight import PackedWeight

TOLERANCE = {torch.float32: 1e-5, torch.bfloat16: 2e-2}


def apply(weight, x, epilogue, out):
    weight.apply(decoder_kernels(), x, out, epilogue, threads=1)
    return out


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("biases", [(True, True), (True, False), (False, False)])
def test_weights_side_by_side_are_one_layer(dtype, biases):
    """Projections of the same input give their results next to each other."""
    torch.manual_seed(1)
    weights = [torch.randn(size, 64, dtype=dtype) / 8 for size in (48, 16)]
    own = [torch.randn(len(w), dtype=dtype) if has else None for w, has in zip(weights, biases, strict=True)]
    x = torch.randn(9, 64, dtype=dtype)

    out = apply(PackedWeight(weights, own), x, Epilogue.PLAIN, torch.empty(9, 64, dtype=dtype))

    expected = torch.cat([linear(x, w, b) for w, b in zip(weights, own, strict=True)], dim=1)
    assert torch.allclose(out, expected, atol=TOLERANCE[dtype])


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("columns", [16, 24, 96])  # 24: the last panel is half gate, half zeros
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_gate_and_up_give_their_product(dtype, columns, bias):
    """silu(gate) times up, both over the same input."""
    torch.manual_seed(2)
    weights = [torch.randn(columns, 64, dtype=dtype) / 8 for _ in range(2)]
    biases = [torch.randn(columns, dtype=dtype) if bias else None for _ in range(2)]
    x = torch.randn(5, 64, dtype=dtype)
    out = torch.empty(5, columns, dtype=dtype)

    apply(PackedWeight(weights, biases, gated=True), x, Epilogue.SILU_MUL, out)

    gate, up = (linear(x, w, b) for w, b in zip(weights, biases, strict=True))
    assert torch.allclose(out, silu(gate) * up, atol=3 * TOLERANCE[dtype])


def test_large_gates_neither_overflow_nor_vanish():
    """silu is 0 far below zero and the identity far above."""
    weights = [torch.tensor([[-200.0], [200.0], [90.0], [-90.0]]), torch.ones(4, 1)]
    out = apply(PackedWeight(weights, gated=True), torch.ones(1, 1), Epilogue.SILU_MUL, torch.empty(1, 4))

    assert torch.allclose(out, torch.tensor([[0.0, 200.0, 90.0, 0.0]]), atol=1e-30)


def test_widened_results_are_rounded_first():
    """Float32 logits of a bfloat16 model are the numbers that the model's own type would hold."""
    torch.manual_seed(3)
    weight, x = torch.randn(40, 64).bfloat16(), torch.randn(3, 64).bfloat16()
    packed = PackedWeight([weight])
    wide = apply(packed, x, Epilogue.WIDEN, torch.empty(3, 40))

    assert torch.equal(wide, apply(packed, x, Epilogue.PLAIN, torch.empty(3, 40, dtype=torch.bfloat16)).float())
