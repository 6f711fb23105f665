"""The compiled layers of a decoder: records as ``decoder_layers.c`` reads them, and the library."""

import ctypes
from enum import IntEnum

import torch

from paceline.kernels.compiled import load_kernel


class Epilogue(IntEnum):
    """What becomes of a linear layer's sums; see ``packed_linear.c``."""

    PLAIN = 0
    ADD = 1
    SILU_MUL = 2
    WIDEN = 3


class LinearCall(ctypes.Structure):
    """One linear layer over packed weights."""

    _fields_ = (
        *((name, ctypes.c_void_p) for name in ("x", "weight", "bias", "residual", "out")),
        *((name, ctypes.c_int64) for name in ("rows", "steps", "columns")),
        *((name, ctypes.c_int32) for name in ("is_bf16", "epilogue", "threads")),
    )


class AttentionSequence(ctypes.Structure):
    """One sequence's queries and where its keys are."""

    _fields_ = (
        ("slots", ctypes.c_void_p),  # int32 [start + num_queries]
        ("parents", ctypes.c_void_p),  # int32 [num_nodes] or None
        *((name, ctypes.c_int64) for name in ("first_row", "start", "num_queries", "num_nodes")),
    )


class AttentionCall(ctypes.Structure):
    """Attention of a flat batch in one layer."""

    _fields_ = (
        *((name, ctypes.c_void_p) for name in ("query", "out", "keys", "values", "sequences")),
        *((name, ctypes.c_int64) for name in ("num_sequences", "query_row", "query_head", "out_row", "out_head")),
        *((name, ctypes.c_int32) for name in ("num_heads", "num_kv_heads", "head_dim", "is_bf16", "threads", "window")),
        ("scaling", ctypes.c_float),
        ("softcap", ctypes.c_float),
    )


class PackedWeight(ctypes.Structure):
    """A packed weight and its bias."""

    _fields_ = (("weight", ctypes.c_void_p), ("bias", ctypes.c_void_p))


class DecoderLayer(ctypes.Structure):
    """Weights of one layer, and its K and V."""

    _fields_ = (
        *((name, PackedWeight) for name in ("qkv", "out", "gate_up", "down")),
        *((name, ctypes.c_void_p) for name in ("input_norm", "post_norm", "query_norm", "key_norm", "keys", "values")),
        ("window", ctypes.c_int64),
    )


class DecoderPass(ctypes.Structure):
    """One pass over a flat batch: what all layers share."""

    _fields_ = (
        *((name, ctypes.c_void_p) for name in ("hidden", "normed", "qkv", "mixed", "active")),
        *((name, ctypes.c_void_p) for name in ("cos", "sin", "write_slots", "sequences")),
        *((name, ctypes.c_int64) for name in ("tokens", "num_sequences", "hidden_size", "intermediate_size")),
        *((name, ctypes.c_int32) for name in ("num_heads", "num_kv_heads", "head_dim", "is_bf16", "threads")),
        ("epsilon", ctypes.c_float),
        ("scaling", ctypes.c_float),
    )


def decoder_kernels() -> ctypes.CDLL | None:
    """``packed_linear``, ``paged_attention``, ``rms_norm`` and ``decoder_layers``; None without a compiler."""
    return load_kernel("decoder_layers")


def decoder_lanes() -> int:
    """Float32 numbers in one register; a panel of packed weights has twice as many columns."""
    kernels = decoder_kernels()
    return 1 if kernels is None else int(kernels.lanes())


def decoder_arithmetic() -> str:
    """Names the order and rounding of sums in the compiled layers; ``torch`` without a compiler."""
    kernels = decoder_kernels()
    if kernels is None:
        return "torch"
    kernels.arithmetic.restype = ctypes.c_char_p
    return f"{decoder_lanes()} lanes, {kernels.arithmetic().decode()}"


def pointer(tensor: torch.Tensor | None) -> int | None:
    """Address of a tensor's first element."""
    return None if tensor is None else tensor.data_ptr()
