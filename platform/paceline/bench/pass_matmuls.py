"""Nothing but the matrix products of a pass: what a target pass could cost at best."""

import ctypes
import time

import torch

from paceline.bench.stock_model import DTYPES, ModelSpec, load_stock
from paceline.errors import ConfigError
from paceline.kernels.decoder_layers import Epilogue, decoder_kernels
from paceline.modeling.compiled_layer import CompiledLayer
from paceline.modeling.compiled_network import has_llama_shape
from paceline.modeling.packed_weight import PackedWeight

MATMUL_KINDS = ("compiled", "onednn")
MATMUL_ROWS = (1, 4, 16)


class OneDnnMatmuls:
    """Every linear layer once per pass, packed for oneDNN, on made-up activations."""

    def __init__(self, spec: ModelSpec) -> None:
        if not hasattr(torch.ops.mkldnn, "_linear_pointwise"):
            raise ConfigError("This build of PyTorch has no packed linear layers to compare with.")
        model = load_stock(spec, "sdpa")
        self._dtype = DTYPES[spec.dtype]
        self._layers = [
            (module.in_features, torch.ops.mkldnn._reorder_linear_weight(module.weight.detach(), None))  # noqa: SLF001
            for module in model.modules()
            if type(module) is torch.nn.Linear
        ]

    @torch.inference_mode()
    def passes(self, rows: int, count: int) -> float:
        """Seconds of ``count`` passes over ``rows`` tokens."""
        inputs = {size: torch.ones(rows, size, dtype=self._dtype) for size, _ in self._layers}
        product = torch.ops.mkldnn._linear_pointwise  # noqa: SLF001
        started_s = time.perf_counter()
        for _ in range(count):
            for size, weight in self._layers:
                product(inputs[size], weight, None, "none", [], "")
        return time.perf_counter() - started_s


class CompiledMatmuls:
    """The packed products of the engine's compiled layers, called one after another without anything between."""

    def __init__(self, spec: ModelSpec) -> None:
        model, kernels = load_stock(spec, "sdpa"), decoder_kernels()
        if kernels is None or not has_llama_shape(model):
            raise ConfigError("This model does not run through the compiled layers here.")
        self._product = kernels.packed_linear
        self._dtype = DTYPES[spec.dtype]
        self._linears: list[tuple[PackedWeight, Epilogue]] = []
        for layer in model.model.layers:
            packed = CompiledLayer(layer, model.config)
            self._linears += [(packed.qkv, Epilogue.PLAIN), (packed.out, Epilogue.PLAIN)]
            self._linears += [(packed.gate_up, Epilogue.SILU_MUL), (packed.down, Epilogue.PLAIN)]
        self._linears.append((PackedWeight([model.lm_head.weight], [model.lm_head.bias]), Epilogue.WIDEN))

    def passes(self, rows: int, count: int) -> float:
        """Seconds of ``count`` passes over ``rows`` tokens."""
        buffers = [self._buffers(weight, epilogue, rows) for weight, epilogue in self._linears]
        calls = [  # made before the clock runs
            weight.call(x, out, epilogue, threads=torch.get_num_threads())
            for (weight, epilogue), (x, out) in zip(self._linears, buffers, strict=True)
        ]
        started_s = time.perf_counter()
        for _ in range(count):
            for call in calls:
                self._product(ctypes.byref(call))
        return time.perf_counter() - started_s

    def _buffers(self, weight: PackedWeight, epilogue: Epilogue, rows: int) -> tuple[torch.Tensor, torch.Tensor]:
        kind = torch.float32 if epilogue is Epilogue.WIDEN else self._dtype
        return torch.ones(rows, weight.in_features, dtype=self._dtype), torch.empty(rows, weight.columns, dtype=kind)
