import os
import subprocess
import sys

import pytest
import torch

from paceline.modeling.onednn_linear import MIN_ROWS, OneDnnLinear, onednn_available


def test_the_operations_are_there():
    """This version of PyTorch has the private operations that packing rests on."""
    assert onednn_available()


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("shape", [(5, 96), (1, 7, 96), (0, 96)])
def test_packed_is_linear(bias, shape):
    """The packed layer computes what the original does, for any leading shape, no rows included."""
    linear = torch.nn.Linear(96, 160, bias=bias)
    x = torch.randn(shape)

    with torch.inference_mode():
        assert torch.allclose(OneDnnLinear(linear)(x), linear(x), atol=1e-5)


@pytest.mark.parametrize("num_rows", [4, 5, 8, 17, 33, 100])
def test_a_row_has_the_same_bits_beside_any_others(num_rows):
    """From the least number of rows on, what a row gives does not depend on how many rows there are."""
    assert num_rows >= MIN_ROWS
    torch.manual_seed(0)
    packed = OneDnnLinear(torch.nn.Linear(96, 160))
    x = torch.randn(256, 96)

    with torch.inference_mode():
        assert torch.equal(packed(x[3 : 3 + num_rows].contiguous()), packed(x)[3 : 3 + num_rows])


def test_a_type_is_packed_only_where_the_processor_can():
    """Without AVX-512 bfloat16 is left alone: packing it would raise an error while a model is loaded."""
    script = (
        "import torch; from paceline.modeling.onednn_linear import *; "
        "print([OneDnnLinear(torch.nn.Linear(8, 8, dtype=dtype)) and str(dtype)"
        " for dtype in (torch.float32, torch.bfloat16, torch.float16) if onednn_packs(dtype)])"
    )
    environment = {**os.environ, "ONEDNN_MAX_CPU_ISA": "AVX2"}
    done = subprocess.run([sys.executable, "-c", script], env=environment, capture_output=True, text=True, check=True)

    assert done.stdout.strip() == "['torch.float32']"
