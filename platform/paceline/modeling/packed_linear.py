"""Linear layers that stand in for a model's own on CPU, their weights laid out once."""

import ctypes
import logging

import torch

from paceline.kernels.decoder_layers import Epilogue, decoder_kernels
from paceline.modeling.onednn_linear import OneDnnLinear, onednn_packs
from paceline.modeling.packed_weight import PackedWeight, packable

logger = logging.getLogger(__name__)


class PackedLinear(torch.nn.Module):
    """``x @ weight.T + bias`` by the compiled product; a row's bits never depend on the rows beside it."""

    def __init__(self, linear: torch.nn.Linear, kernels: ctypes.CDLL) -> None:
        super().__init__()
        self.in_features = linear.in_features
        self.out_features = linear.out_features
        self._kernels = kernels
        self._weight = PackedWeight([linear.weight.detach()], [linear.bias])

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """``[..., in_features]`` to ``[..., out_features]``."""
        rows = x.reshape(-1, self.in_features).contiguous()
        out = x.new_empty(rows.shape[0], self.out_features)
        self._weight.apply(self._kernels, rows, out, Epilogue.PLAIN, threads=torch.get_num_threads())
        return out.view(*x.shape[:-1], self.out_features)


def pack_linears(model: torch.nn.Module) -> int:
    """Replace the linear layers of ``model`` in place; returns how many.

    None where there is neither a compiler nor oneDNN's operation: the model then runs unpacked. A head
    that is tied to the embedding gets a copy of its own, as an embedding cannot be packed.
    """
    count = 0
    kernels = decoder_kernels()
    for name, module in list(model.named_modules()):
        if kernels is not None and packable(module):
            model.set_submodule(name, PackedLinear(module, kernels))
        elif type(module) is torch.nn.Linear and _fits_onednn(module):
            model.set_submodule(name, OneDnnLinear(module))
        else:
            continue
        count += 1
    if count:
        release_file(model)
    return count


def release_file(model: torch.nn.Module) -> None:
    """Give what is left its own memory: it views the mapped weight file, which would stay as a whole."""
    for parameter in model.parameters():
        parameter.data = parameter.data.clone()


def _fits_onednn(linear: torch.nn.Linear) -> bool:
    return linear.weight.is_cpu and onednn_packs(linear.weight.dtype)
