"""Turns a GGUF file into a folder of safetensors; run as a program, so that its memory is returned.

``python -m paceline.modeling.convert_gguf FILE.gguf OUT_FOLDER``

Weights are written in float32: a Q4_1 value is scale * 4-bit integer + offset with half-precision
scale and offset, which float32 holds and bfloat16 does not.
"""

import json
import sys
from pathlib import Path

import torch
from gguf import GGUFReader
from tokenizers import Tokenizer, pre_tokenizers
from transformers import AutoModelForCausalLM, AutoTokenizer, GgufConfig

# How a GGUF file's named pre-tokenizer splits text before BPE, where Transformers' own conversion
# knows the family only and would merge across digits.
_DIGIT_SPLITTING = frozenset({"smollm"})


def convert(gguf: Path, folder: Path) -> None:
    """Write model, generation config, tokenizer and chat template of ``gguf`` to ``folder``."""
    model = AutoModelForCausalLM.from_pretrained(
        gguf.parent,
        gguf_file=gguf.name,
        quantization_config=GgufConfig(dequantize=True),
        dtype=torch.float32,
        trust_remote_code=False,
    )
    model.config._name_or_path = ""  # noqa: SLF001 - the GGUF's build name means nothing to users
    model.save_pretrained(folder)
    tokenizer = AutoTokenizer.from_pretrained(gguf.parent, gguf_file=gguf.name, trust_remote_code=False)
    tokenizer.model_max_length = model.config.max_position_embeddings
    tokenizer.save_pretrained(folder)
    if _pre_tokenizer_name(gguf) in _DIGIT_SPLITTING:
        _split_digits(folder / "tokenizer.json")
    _drop_build_name(folder / "config.json")


def _pre_tokenizer_name(gguf: Path) -> str:
    """GGUF key ``tokenizer.ggml.pre``; empty if the file lacks it."""
    field = GGUFReader(gguf).fields.get("tokenizer.ggml.pre")
    return str(field.contents()) if field else ""


def _split_digits(tokenizer_json: Path) -> None:
    tokenizer = Tokenizer.from_file(str(tokenizer_json))
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Digits(individual_digits=True), tokenizer.pre_tokenizer]
    )
    tokenizer.save(str(tokenizer_json))


def _drop_build_name(config_json: Path) -> None:
    config = json.loads(config_json.read_text("utf-8"))
    config.pop("_model_name_or_path", None)
    config_json.write_text(json.dumps(config, indent=2) + "\n", "utf-8")


if __name__ == "__main__":
    convert(Path(sys.argv[1]), Path(sys.argv[2]))
