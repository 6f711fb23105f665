"""Turns pickled weights into safetensors: the only reader of pickles, and it lets them make nothing but tensors."""

import pickle
import shutil
import tempfile
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file

from paceline.errors import ModelRefusedError, ModelUnavailableError

PICKLES = ("*.bin", "*.pt", "*.pth", "*.ckpt")
_COPIED = ("*.json", "*.txt", "*.model", "*.jinja", "*.md")
_WRAPPERS = ("state_dict", "model_state_dict", "model")  # what training scripts put around the tensors


def convert_pickles(folder: Path, out: Path) -> int:
    """Write the tensors of all pickles in ``folder`` to ``out`` as one file, and copy its configuration.

    Returns the number of tensors. ``out`` appears whole or not at all. Raises ModelUnavailableError for a folder
    without pickles or an ``out`` that exists, and ModelRefusedError for a pickle of anything but named tensors.
    """
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise ModelUnavailableError(f"{out} exists already; name a folder that does not.")
    if not (folder / "config.json").is_file():
        raise ModelUnavailableError(f"The folder {folder} has no config.json, so it holds no model.")
    files = sorted(file for pattern in PICKLES for file in folder.glob(pattern))
    if not files:
        raise ModelUnavailableError(f"The folder {folder} holds no pickles ({', '.join(PICKLES)}).")
    tensors: dict[str, torch.Tensor] = {}
    for file in files:
        for name, tensor in _read(file).items():
            if name in tensors:
                raise ModelRefusedError(f"{file} is refused: tensor '{name}' is in another file of the folder too.")
            tensors[name] = tensor.contiguous().clone()  # a file of safetensors shares no memory between tensors
    out.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=out.parent) as scratch:
        built = Path(scratch) / "built"
        built.mkdir()
        _copy_others(folder, built)
        save_file(tensors, built / "model.safetensors", metadata={"format": "pt"})
        (built / "model.safetensors").chmod(0o644)
        if out.exists():
            out.rmdir()
        built.rename(out)
    return len(tensors)


def _read(file: Path) -> dict[str, torch.Tensor]:
    try:
        content: Any = torch.load(file, map_location="cpu", weights_only=True)
    except pickle.UnpicklingError as error:
        raise ModelRefusedError(f"{file} is refused: it holds more than tensors, and would run code.") from error
    except (OSError, RuntimeError, EOFError, ValueError, KeyError) as error:
        raise ModelUnavailableError(f"{file} cannot be read ({_first_line(error)}); download it again.") from error
    for wrapper in _WRAPPERS:
        if isinstance(content, dict) and isinstance(content.get(wrapper), dict):
            content = content[wrapper]
    if not isinstance(content, dict) or not content or not all(map(_is_named_tensor, content.items())):
        raise ModelRefusedError(f"{file} is refused: it is no collection of named tensors.")
    return content


def _is_named_tensor(item: tuple[object, object]) -> bool:
    return isinstance(item[0], str) and isinstance(item[1], torch.Tensor)


def _copy_others(folder: Path, built: Path) -> None:
    """Configuration, tokenizer and card; an index names the pickles, so it stays behind."""
    for pattern in _COPIED:
        for file in folder.glob(pattern):
            if not file.name.endswith(".index.json"):
                shutil.copyfile(file, built / file.name)


def _first_line(error: Exception) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0]
