"""The records of the compiled layers, and what they are compiled from."""

import ctypes
import platform
import shutil
from pathlib import Path

import pytest
import torch

from paceline.kernels import compiled, decoder_layers
from paceline.kernels.decoder_layers import (
    AttentionCall,
    AttentionSequence,
    DecoderLayer,
    DecoderPass,
    Epilogue,
    LinearCall,
    decoder_arithmetic,
    decoder_kernels,
    decoder_lanes,
)
from paceline.kvcache.page_pool import PageTable
from paceline.modeling.forward_row import ForwardRow
from paceline.modeling.loader import load_model
from paceline.modeling.packed_weight import PackedWeight
from paceline.modeling.runner import ModelRunner
from tiny_models import save_tiny_model

RECORDS = (LinearCall, AttentionSequence, AttentionCall, decoder_layers.PackedWeight, DecoderLayer, DecoderPass)
_QUICK_FLAGS = ("-O1", *(flag for flag in compiled._FLAGS if flag not in ("-O3", "-march=native")))


def test_records_are_as_long_as_in_c(monkeypatch, tmp_path):
    """A field that only one side has would shift all that follow it."""
    folder = Path(compiled.__file__).parent
    for source in (*folder.glob("*.c"), *folder.glob("*.h")):
        shutil.copy(source, tmp_path)
    sizes = ", ".join(f"sizeof({record.__name__})" for record in RECORDS)
    (tmp_path / "size.c").write_text(f'#include "decoder_layers.c"\nconst long sizes[] = {{{sizes}}};')
    monkeypatch.setattr(compiled, "__file__", str(tmp_path / "compiled.py"))
    monkeypatch.setattr(compiled, "_FLAGS", ("-O0", "-fopenmp", "-shared", "-fPIC", "-std=gnu11"))
    monkeypatch.setenv("PACELINE_CACHE", str(tmp_path))

    library = compiled.load_kernel.__wrapped__("size")

    in_c = (ctypes.c_long * len(RECORDS)).in_dll(library, "sizes")
    assert list(in_c) == [ctypes.sizeof(record) for record in RECORDS]


def test_the_layers_compile_here():
    """Development machines have a compiler, and the source has no error."""
    assert decoder_kernels() is not None


@pytest.mark.skipif(platform.machine() != "x86_64", reason="names instruction sets of x86-64")
@pytest.mark.parametrize("level", ["x86-64-v2", "x86-64-v3"])
def test_arithmetic_has_another_name_where_it_has_other_bits(monkeypatch, tmp_path, level):
    """Layers compiled for another processor say so, if their products differ from those compiled for this one."""
    here, name_here = _products(decoder_kernels()), decoder_arithmetic()
    other = _compiled_for(level, monkeypatch, tmp_path)
    monkeypatch.setattr(decoder_layers, "load_kernel", lambda _: other)

    assert torch.allclose(_products(other), here, rtol=0.02, atol=0.02)
    assert torch.equal(_products(other), here) or decoder_arithmetic() != name_here


@pytest.mark.skipif(platform.machine() != "x86_64", reason="names instruction sets of x86-64")
@pytest.mark.parametrize("level", ["x86-64-v2", "x86-64-v3"])
def test_registers_of_other_widths_compute_the_same_model(monkeypatch, tmp_path, level):
    """A tiny model's logits of a prompt, and of a tree across a border of key blocks, with narrower registers."""
    folder = save_tiny_model(tmp_path / "model", "qwen3", head_dim=20)
    here = _tree_logits(folder)
    monkeypatch.setattr(decoder_layers, "load_kernel", lambda _: _compiled_for(level, monkeypatch, tmp_path))

    assert decoder_lanes() == {"x86-64-v2": 4, "x86-64-v3": 8}[level]
    assert (_tree_logits(folder) - here).abs().max() < 1e-4


def _products(kernels):
    """bfloat16 inputs times bfloat16 weights, by a linear layer."""
    torch.manual_seed(0)
    weight, x, out = torch.randn(64, 576).bfloat16(), torch.randn(5, 576).bfloat16(), torch.empty(5, 64)
    PackedWeight([weight]).apply(kernels, x, out, Epilogue.WIDEN, threads=1)
    return out


def _compiled_for(level, monkeypatch, folder):
    """The layers for other processors than this one; compiled once per folder."""
    monkeypatch.setattr(compiled, "_FLAGS", (*_QUICK_FLAGS, f"-march={level}"))
    monkeypatch.setenv("PACELINE_CACHE", str(folder))
    return compiled.load_kernel.__wrapped__("decoder_layers")


def _tree_logits(folder):
    """All logits of a prompt of 70 tokens with a tree behind it."""
    runner = ModelRunner(load_model(folder, dtype="float32"), num_pages=80, page_size=1)
    table = PageTable(runner.pool, 77)
    table.extend_to(77)
    first = runner.forward([ForwardRow(range(3, 63), 0, table, 60)])
    tree = runner.forward([ForwardRow(range(20, 37), 60, table, 17, (-1, -1, 0, 0, 1, 2, 5))])
    return torch.cat((first, tree))
