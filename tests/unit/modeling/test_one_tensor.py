"""A single tensor is read, or a sentence says why not."""

import pytest
import torch
from safetensors.torch import save_file

from paceline.errors import ModelUnavailableError
from paceline.modeling.one_tensor import read_tensor


def test_a_tensor_is_found_in_whichever_file_holds_it(tmp_path):
    """Models are often split into several files."""
    save_file({"first": torch.zeros(2)}, tmp_path / "a.safetensors")
    save_file({"second": torch.arange(3)}, tmp_path / "b.safetensors")

    assert read_tensor(tmp_path, "second").tolist() == [0, 1, 2]


def test_what_cannot_be_read_is_named(tmp_path):
    """The tensor that is missing, or the file that is broken."""
    with pytest.raises(ModelUnavailableError, match="lacks the tensor 'third'"):
        read_tensor(tmp_path, "third")
    (tmp_path / "c.safetensors").write_bytes(b"broken")
    with pytest.raises(ModelUnavailableError, match=r"c\.safetensors cannot be read"):
        read_tensor(tmp_path, "third")
