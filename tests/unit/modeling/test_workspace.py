import torch

from paceline.modeling.workspace import Workspace


def test_a_pass_that_fits_allocates_nothing():
    """Buffers are made anew only for a larger pass, and then with room to spare."""
    workspace = Workspace((8, 24), torch.bfloat16)
    first = workspace.buffers(5)

    assert [tuple(buffer.shape) for buffer in first] == [(8, 8), (8, 24)]
    assert workspace.buffers(8) is first
    assert workspace.buffers(9) is not first
