"""Reads a single tensor of a model folder, without loading the rest."""

from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open

from paceline.errors import ModelUnavailableError


def read_tensor(folder: Path, name: str) -> torch.Tensor:
    """The tensor ``name`` of the safetensors files in ``folder``. Raises ModelUnavailableError if it is not there."""
    for file in sorted(folder.glob("*.safetensors")):
        try:
            with safe_open(file, framework="pt") as opened:
                if name in opened.keys():  # noqa: SIM118 - not a mapping
                    tensor: torch.Tensor = opened.get_tensor(name)
                    return tensor
        except (OSError, SafetensorError) as error:
            raise ModelUnavailableError(f"{file} cannot be read ({error}); download it again.") from error
    raise ModelUnavailableError(f"The model in {folder} lacks the tensor '{name}'; download it again.")
