import pytest
import torch

from paceline.modeling.masks import causal_mask


@pytest.mark.parametrize("window", [None, 1, 3])
def test_the_mask_follows_its_definition(window):
    """Key j is visible to query i iff j <= i and, with a window, j > i - window."""
    query_index = torch.tensor([[2, 3, 4], [0, 0, 0]])

    mask = causal_mask(query_index, 6, window=window, copies=2, dtype=torch.float32)

    assert mask.shape == (2, 1, 6, 6)
    for sequence in range(2):
        for row in range(6):
            query = int(query_index[sequence, row % 3])
            for key in range(6):
                visible = key <= query and (window is None or key > query - window)
                assert mask[sequence, 0, row, key] == (0.0 if visible else float("-inf"))
