"""Reads a head's folder: safetensors only, every tensor asked for by name and checked."""

from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import TypeVar

import torch
from accelerate import init_empty_weights
from safetensors import SafetensorError, safe_open

from paceline.errors import ModelRefusedError, ModelUnavailableError
from paceline.modeling.convert_pickle import PICKLES

_Head = TypeVar("_Head", bound=torch.nn.Module)


class HeadTensors:
    """Tensors of a folder, handed out once each; what nobody took is a mistake in the checkpoint."""

    def __init__(self, folder: Path, tensors: dict[str, torch.Tensor]) -> None:
        self.folder = folder
        self._left = tensors

    @staticmethod
    def read(folder: Path, *, keep: Callable[[str], bool] = lambda _: True, strip: Iterable[str] = ()) -> "HeadTensors":
        """Tensors of ``folder`` whose names ``keep`` accepts, without the prefixes of ``strip``.

        Raises ModelUnavailableError for a file that cannot be read, and ModelRefusedError for pickles.
        """
        tensors: dict[str, torch.Tensor] = {}
        for file in safetensors_files(folder):
            for name, tensor in _tensors(file, keep):
                tensors[_stripped(name, strip)] = tensor
        return HeadTensors(folder, tensors)

    def mapped(self, name_of: Callable[[str], str]) -> "HeadTensors":
        """The same tensors under other names."""
        return HeadTensors(self.folder, {name_of(name): tensor for name, tensor in self._left.items()})

    def __contains__(self, name: str) -> bool:
        return name in self._left

    def shape(self, name: str) -> tuple[int, ...]:
        """Of a tensor that is there."""
        return tuple(self._left[name].shape)

    def refuse(self, reason: str) -> ModelRefusedError:
        """The error to raise for ``reason``."""
        return ModelRefusedError(f"The head in {self.folder} is refused: {reason}.")

    def take(self, name: str, *shape: int) -> torch.Tensor:
        """Tensor ``name`` of floating-point numbers, all finite. Raises ModelRefusedError."""
        tensor = self.take_any(name, *shape)
        if not tensor.dtype.is_floating_point:
            raise self.refuse(f"tensor '{name}' holds {_plain(tensor.dtype)}, not floating-point numbers")
        if not torch.isfinite(tensor).all():
            raise self.refuse(f"tensor '{name}' holds NaN or infinite values; the training that made it failed")
        return tensor

    def take_ids(self, name: str, size: int) -> torch.Tensor:
        """Tensor ``name`` of ``size`` integers, as int64. Raises ModelRefusedError."""
        tensor = self.take_any(name, size)
        if tensor.dtype.is_floating_point or tensor.dtype is torch.bool:
            raise self.refuse(f"tensor '{name}' holds {_plain(tensor.dtype)}, not integers")
        return tensor.to(torch.int64)

    def take_any(self, name: str, *shape: int) -> torch.Tensor:
        """Tensor ``name`` of this shape and any type. Raises ModelRefusedError."""
        if name not in self._left:
            raise self.refuse(f"tensor '{name}' is missing")
        tensor = self._left.pop(name)
        if tuple(tensor.shape) != shape:
            found, needed = _sizes(tensor.shape), _sizes(shape)
            raise self.refuse(f"tensor '{name}' has the shape {found}, but {needed} is needed with this target")
        return tensor

    def fill(self, module: torch.nn.Module, prefix: str) -> None:
        """Copy tensors into every parameter of ``module``, each under ``prefix`` and its own name."""
        for name, parameter in list(module.named_parameters()):
            tensor = self.take(prefix + name, *parameter.shape).to(parameter.dtype).clone()
            owner, _, own_name = name.rpartition(".")
            setattr(module.get_submodule(owner), own_name, torch.nn.Parameter(tensor, requires_grad=False))

    def drop(self, name: str) -> None:
        """Forget a tensor that means nothing here."""
        self._left.pop(name, None)

    def finish(self) -> None:
        """Raise ModelRefusedError if anything is left."""
        if self._left:
            raise self.refuse(f"tensor '{min(self._left)}' belongs to no part of such a head")


def unfilled(make: Callable[[], _Head], dtype: torch.dtype) -> _Head:
    """What ``make`` builds, with parameters of ``dtype`` that have no memory until `HeadTensors.fill`.

    Buffers are left as they are: frequencies of rotary angles that were rounded to bfloat16 are off by radians a few
    hundred tokens on.
    """
    with init_empty_weights(include_buffers=False):
        head = make()
    for parameter in head.parameters():
        parameter.data = parameter.data.to(dtype)
    return head


def safetensors_files(folder: Path) -> list[Path]:
    """The weight files of ``folder``. Raises ModelRefusedError for pickles, ModelUnavailableError for none."""
    files = sorted(folder.glob("*.safetensors"))
    if files:
        return files
    pickle = next((file for pattern in PICKLES for file in sorted(folder.glob(pattern))), None)
    if pickle is not None:
        raise ModelRefusedError(
            f"The weights {pickle} are a pickle, which can run code when loaded; make safetensors of it with "
            f"'paceline models convert {folder} OUT_FOLDER'."
        )
    raise ModelUnavailableError(f"The folder {folder} holds no *.safetensors files, so it holds no head.")


def _tensors(file: Path, keep: Callable[[str], bool]) -> Iterator[tuple[str, torch.Tensor]]:
    try:
        with safe_open(file, framework="pt") as opened:
            for name in opened.keys():  # noqa: SIM118 - not a mapping
                if keep(name) and not name.endswith("rotary_emb.inv_freq"):
                    yield name, opened.get_tensor(name)
    except (OSError, SafetensorError) as error:
        raise ModelUnavailableError(f"{file} cannot be read ({error}); download it again.") from error


def _stripped(name: str, prefixes: Iterable[str]) -> str:
    for prefix in prefixes:
        name = name.removeprefix(prefix)
    return name


def _sizes(shape: Iterable[int]) -> str:
    return " x ".join(map(str, shape)) or "of a single number"


def _plain(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")
