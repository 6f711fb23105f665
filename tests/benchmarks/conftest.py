"""Micro-benchmarks of the parts of a step, at the sizes of the demo model. `make bench-micro` times them."""

import pytest
import torch

from paceline.bench.random_model import ModelShape, random_model
from paceline.modeling.runner import ModelRunner


@pytest.fixture(autouse=True)
def one_thread():
    """Figures of one thread can be compared between machines and days; many cannot."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="session")
def runner():
    """Two layers of the demo model's shape, with a small vocabulary, in bfloat16."""
    shape = ModelShape("two-layers", 4096, 576, 1536, 2, 9, 3)
    return ModelRunner(random_model(shape, dtype=torch.bfloat16, device="cpu"), num_pages=1024, page_size=16)
