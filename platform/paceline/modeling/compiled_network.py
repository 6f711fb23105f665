"""Decoders of Llama's shape on CPU, as one call of ``kernels/decoder_layers.c`` per pass.

Around the arithmetic of one token, the modules of Transformers spend more time than the arithmetic takes.
"""

import ctypes
from collections.abc import Sequence
from weakref import WeakKeyDictionary

import torch
from transformers import PreTrainedConfig, PreTrainedModel

from paceline.kernels import decoder_layers as records
from paceline.kernels.decoder_layers import Epilogue
from paceline.modeling.compiled_layer import CompiledLayer
from paceline.modeling.kv_store import KVStore
from paceline.modeling.packed_linear import release_file
from paceline.modeling.packed_weight import PACKABLE, PackedWeight, packable
from paceline.modeling.step_meta import StepMeta
from paceline.modeling.workspace import Workspace

_FAMILIES = frozenset({"llama", "mistral", "qwen2", "qwen3"})


def has_llama_shape(model: PreTrainedModel) -> bool:
    """Whether the compiled layers compute what ``model`` does; others run through their own modules."""
    config = model.config
    if config.model_type not in _FAMILIES or config.hidden_act != "silu" or model.dtype not in PACKABLE:
        return False
    head_dim = model.model.layers[0].self_attn.head_dim
    rotated = model.model.rotary_emb.inv_freq.shape[0] * 2
    linears = [module for module in model.modules() if isinstance(module, torch.nn.Linear)]
    return rotated == head_dim and head_dim % 2 == 0 and all(packable(linear) for linear in linears)


class CompiledNetwork:
    """Embedding, compiled layers, head; takes the weights out of the model, whose layers are gone then."""

    def __init__(self, model: PreTrainedModel, kernels: ctypes.CDLL) -> None:
        config, decoder = model.config, model.model
        self._kernels = kernels
        self._layers = [CompiledLayer(layer, config) for layer in decoder.layers]
        self._head = PackedWeight([model.lm_head.weight], [model.lm_head.bias])
        decoder.layers, model.lm_head = torch.nn.ModuleList(), torch.nn.Identity()
        release_file(model)
        self._embedding: torch.Tensor = decoder.embed_tokens.weight
        self._norm: torch.Tensor = decoder.norm.weight
        self._cos, self._sin = _rotary_tables(decoder.rotary_emb, config, self._embedding.dtype)
        self._config = config
        self._workspace = Workspace(self._layers[0].widths, self._embedding.dtype)
        self._records: WeakKeyDictionary[KVStore, ctypes.Array[records.DecoderLayer]] = WeakKeyDictionary()

    def logits(self, step: StepMeta) -> torch.Tensor:
        """See `Network.logits`. Only the rows that are wanted pass the last norm and the head."""
        threads = torch.get_num_threads()
        hidden = self._embedding.index_select(0, step.token_ids)
        self._run_layers(hidden, step, threads)
        wanted = hidden.index_select(0, step.wanted)
        normed = torch.empty_like(wanted)
        self._kernels.rms_norm(
            ctypes.c_void_p(wanted.data_ptr()),
            ctypes.c_void_p(self._norm.data_ptr()),
            ctypes.c_void_p(normed.data_ptr()),
            ctypes.c_int64(len(wanted)),
            ctypes.c_int64(wanted.shape[1]),
            ctypes.c_float(self._config.rms_norm_eps),
            ctypes.c_int32(wanted.dtype is torch.bfloat16),
        )
        logits = torch.empty(len(wanted), self._head.columns)
        self._head.apply(self._kernels, normed, logits, Epilogue.WIDEN, threads=threads)
        return logits

    def _run_layers(self, hidden: torch.Tensor, step: StepMeta, threads: int) -> None:
        """Turn ``hidden`` ([tokens, hidden_size]) from the embedding into the last layer's output, in place."""
        first = self._layers[0]
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
            intermediate_size=first.gate_up.columns,
            num_heads=first.num_heads,
            num_kv_heads=first.num_kv_heads,
            head_dim=first.head_dim,
            is_bf16=hidden.dtype is torch.bfloat16,
            threads=threads,
            epsilon=self._config.rms_norm_eps,
            scaling=first.scaling,
        )
        layers = self._records_for(step.store)
        self._kernels.decoder_layers(ctypes.byref(call), layers, ctypes.c_int64(len(layers)))

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
