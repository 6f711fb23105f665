"""Weights of linear layers, laid out for the compiled product of ``kernels/packed_linear.c``."""

import ctypes
from collections.abc import Sequence

import torch
from torch.nn.functional import pad

from paceline.kernels.decoder_layers import Epilogue, LinearCall, decoder_lanes, pointer

PACKABLE = (torch.float32, torch.bfloat16)


class PackedWeight:
    """One or more weights ``[out_features, in_features]`` over the same input, as panels of columns.

    ``gated``: two weights, gate and up, whose columns alternate by as many as there are lanes, so that
    one panel has both factors of so many products.
    """

    def __init__(
        self, weights: Sequence[torch.Tensor], biases: Sequence[torch.Tensor | None] = (), *, gated: bool = False
    ) -> None:
        self.dtype = weights[0].dtype
        self.in_features = weights[0].shape[1]
        self.columns = weights[0].shape[0] if gated else sum(weight.shape[0] for weight in weights)
        self.panels = _panels(_in_order(weights, gated=gated))  # int32 [panels, steps, 2 * lanes]
        self.bias: torch.Tensor | None = None  # float32 [panels * 2 * lanes]
        if any(bias is not None for bias in biases):
            parts = [_bias(bias, weight) for bias, weight in zip(biases, weights, strict=True)]
            self.bias = _in_order(parts, gated=gated).flatten().contiguous()

    def apply(
        self, kernels: ctypes.CDLL, x: torch.Tensor, out: torch.Tensor, epilogue: Epilogue, *, threads: int
    ) -> None:
        """Fill ``out`` ([rows, columns]) with the layer's results for ``x`` ([rows, in_features], contiguous)."""
        kernels.packed_linear(ctypes.byref(self.call(x, out, epilogue, threads=threads)))

    def call(self, x: torch.Tensor, out: torch.Tensor, epilogue: Epilogue, *, threads: int) -> LinearCall:
        """What `apply` hands to the kernel; valid as long as ``x`` and ``out`` are."""
        is_bf16 = x.dtype is torch.bfloat16
        return LinearCall(
            x=x.data_ptr(),
            weight=self.panels.data_ptr(),
            bias=pointer(self.bias),
            residual=None,
            out=out.data_ptr(),
            rows=x.shape[0],
            steps=self.in_features // 2 if is_bf16 else self.in_features,
            columns=self.columns,
            is_bf16=is_bf16,
            epilogue=epilogue,
            threads=threads,
        )


def packable(linear: torch.nn.Module) -> bool:
    """Whether a layer is a plain linear layer on CPU of a type and width that panels can hold."""
    if type(linear) is not torch.nn.Linear or not linear.weight.is_cpu or linear.weight.dtype not in PACKABLE:
        return False
    return linear.weight.dtype is torch.float32 or linear.in_features % 2 == 0


def _in_order(parts: Sequence[torch.Tensor], *, gated: bool) -> torch.Tensor:
    """Rows of ``parts`` in the order of the panels' columns, filled up with zeros."""
    if gated:
        parts = [pad(part, (0, 0, 0, -part.shape[0] % decoder_lanes())) for part in parts]
        groups = torch.stack([part.view(-1, decoder_lanes(), part.shape[1]) for part in parts], dim=1)
        return groups.reshape(-1, parts[0].shape[1])
    rows = torch.cat(list(parts))
    return pad(rows, (0, 0, 0, -rows.shape[0] % (2 * decoder_lanes())))


def _panels(rows: torch.Tensor) -> torch.Tensor:
    units = rows.contiguous().view(torch.int32)
    return units.view(-1, 2 * decoder_lanes(), units.shape[1]).transpose(1, 2).contiguous()


def _bias(bias: torch.Tensor | None, weight: torch.Tensor) -> torch.Tensor:
    values = torch.zeros(weight.shape[0]) if bias is None else bias.detach().float()
    return values.unsqueeze(1)
