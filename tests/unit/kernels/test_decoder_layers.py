"""The records of the compiled layers, and what they are compiled from."""

import ctypes
import shutil
from pathlib import Path

from paceline.kernels import compiled
from paceline.kernels.decoder_layers import (
    AttentionCall,
    AttentionSequence,
    DecoderLayer,
    DecoderPass,
    LinearCall,
    PackedWeight,
    decoder_kernels,
)

RECORDS = (LinearCall, AttentionSequence, AttentionCall, PackedWeight, DecoderLayer, DecoderPass)


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
