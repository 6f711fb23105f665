"""Compiled decoder layers with what a pass needs around them: working memory, rotary angles, addresses."""

import ctypes
from collections.abc import Sequence
from weakref import WeakKeyDictionary

import torch
from transformers import PreTrainedConfig

from paceline.kernels import decoder_layers as records
from paceline.modeling.compiled_layer import CompiledLayer
from paceline.modeling.kv_store import KVStore
from paceline.modeling.step_meta import StepMeta
from paceline.modeling.workspace import Workspace


class CompiledStack:
    """Layers of one shape, run in order as one call; layer i keeps its K and V in layer i of the pass's store."""

    def __init__(
        self,
        layers: Sequence[CompiledLayer],
        config: PreTrainedConfig,
        *,
        rotary: torch.nn.Module,
        dtype: torch.dtype,
        kernels: ctypes.CDLL,
    ) -> None:
        self._kernels = kernels
        self._layers = layers
        self._epsilon: float = config.rms_norm_eps
        self._cos, self._sin = _rotary_tables(rotary, config, dtype)
        self._workspace = Workspace(layers[0].widths, dtype)
        self._records: WeakKeyDictionary[KVStore, ctypes.Array[records.DecoderLayer]] = WeakKeyDictionary()

    def __len__(self) -> int:
        return len(self._layers)

    def run(self, hidden: torch.Tensor, step: StepMeta, *, first: int = 0, last: int | None = None) -> None:
        """Turn ``hidden`` ([tokens, hidden_size]) into the output of layers ``[first, last)``, in place."""
        shape = self._layers[0]
        normed, qkv, mixed, active = self._workspace.buffers(len(hidden))
        cos = self._cos.index_select(0, step.positions)
        sin = self._sin.index_select(0, step.positions)
        call = records.DecoderPass(
            hidden=hidden.data_ptr(),
            normed=normed.data_ptr(),
            qkv=qkv.data_ptr(),
            mixed=mixed.data_ptr(),
            active=active.data_ptr(),
            cos=cos.data_ptr(),
            sin=sin.data_ptr(),
            write_slots=step.host_write_slots.ctypes.data,
            sequences=ctypes.addressof(step.sequences),
            tokens=len(hidden),
            num_sequences=len(step.sequences),
            hidden_size=hidden.shape[1],
            intermediate_size=shape.gate_up.columns,
            num_heads=shape.num_heads,
            num_kv_heads=shape.num_kv_heads,
            head_dim=shape.head_dim,
            is_bf16=hidden.dtype is torch.bfloat16,
            threads=torch.get_num_threads(),
            epsilon=self._epsilon,
            scaling=shape.scaling,
        )
        count = (len(self) if last is None else last) - first
        layers = ctypes.byref(self._records_for(step.store), first * ctypes.sizeof(records.DecoderLayer))
        self._kernels.decoder_layers(ctypes.byref(call), layers, ctypes.c_int64(count))

    def _records_for(self, store: KVStore) -> "ctypes.Array[records.DecoderLayer]":
        """Addresses of each layer's weights and of its K and V in ``store``, which never move."""
        if store not in self._records:
            pairs = zip(self._layers, store.keys, store.values, strict=True)
            self._records[store] = _array([layer.record(keys, values) for layer, keys, values in pairs])
        return self._records[store]


def _array(layers: Sequence[records.DecoderLayer]) -> "ctypes.Array[records.DecoderLayer]":
    return (records.DecoderLayer * len(layers))(*layers)


def _rotary_tables(
    rotary: torch.nn.Module, config: PreTrainedConfig, dtype: torch.dtype
) -> tuple[torch.Tensor, torch.Tensor]:
    """Cosine and sine of every position's angles, float32 ``[context, head_dim / 2]``, rounded as ``dtype``."""
    positions = torch.arange(config.max_position_embeddings).unsqueeze(0)
    with torch.inference_mode():
        cos, sin = rotary(torch.empty(0, dtype=dtype), positions)
    half = cos.shape[-1] // 2
    return cos[0, :, :half].float().contiguous(), sin[0, :, :half].float().contiguous()
