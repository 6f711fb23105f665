"""Models with random weights, made in place: measurements of speed need no download."""

from dataclasses import dataclass
from pathlib import Path

import torch
from tokenizers import Tokenizer, models
from transformers import AutoModelForCausalLM, LlamaConfig, PreTrainedModel, PreTrainedTokenizerFast

from paceline.modeling.attention import ATTENTION_NAME, register_attention
from paceline.modeling.loader import LoadedModel, fastest_network
from paceline.text.tokenizer import TextTokenizer

_UNKNOWN = "<unk>"


@dataclass(frozen=True, slots=True)
class ModelShape:
    """Sizes of a Llama model."""

    name: str
    vocab_size: int
    hidden_size: int
    intermediate_size: int
    num_layers: int
    num_heads: int
    num_kv_heads: int
    context_length: int = 8192

    @property
    def kv_bytes_per_token(self) -> int:
        """K and V of all layers, at two bytes a number."""
        return 2 * 2 * self.num_layers * self.num_kv_heads * (self.hidden_size // self.num_heads)

    def config(self) -> LlamaConfig:
        """The configuration for Transformers."""
        return LlamaConfig(
            vocab_size=self.vocab_size,
            hidden_size=self.hidden_size,
            intermediate_size=self.intermediate_size,
            num_hidden_layers=self.num_layers,
            num_attention_heads=self.num_heads,
            num_key_value_heads=self.num_kv_heads,
            max_position_embeddings=self.context_length,
            tie_word_embeddings=False,
            bos_token_id=None,
            eos_token_id=None,
        )


LLAMA_8B = ModelShape("llama-8b", 128256, 4096, 14336, 32, 32, 8)
TINY = ModelShape("tiny", 512, 64, 128, 2, 4, 2)


def random_model(shape: ModelShape, *, dtype: torch.dtype, device: str, seed: int = 0) -> LoadedModel:
    """A model of ``shape``, made on ``device`` in ``dtype``, ready for a `ModelRunner`."""
    register_attention()
    torch.manual_seed(seed)
    with torch.device(device):
        model = _made(shape, dtype, attn_implementation=ATTENTION_NAME)
    model.train(mode=False)
    model.requires_grad_(requires_grad=False)
    return LoadedModel(
        model=model,
        network=fastest_network(model, device),
        vocab_size=shape.vocab_size,
        hidden_size=shape.hidden_size,
        num_layers=shape.num_layers,
        num_kv_heads=shape.num_kv_heads,
        head_dim=shape.hidden_size // shape.num_heads,
        context_length=shape.context_length,
        dtype=dtype,
        device=device,
        weights_version=f"random-{shape.name}-{seed}",
    )


def silent_tokenizer(shape: ModelShape) -> TextTokenizer:
    """A tokenizer of so many ids, none of which has text, so that no text work is measured."""
    return TextTokenizer(_silent(), vocab_size=shape.vocab_size)


def save_random_model(folder: Path, shape: ModelShape = TINY, *, seed: int = 0) -> Path:
    """Write a model and its tokenizer as a model folder, in float32; returns the folder."""
    torch.manual_seed(seed)
    _made(shape, torch.float32).save_pretrained(folder)
    _silent().save_pretrained(str(folder))
    return folder


def _made(shape: ModelShape, dtype: torch.dtype, **options: str) -> PreTrainedModel:
    model: PreTrainedModel = AutoModelForCausalLM.from_config(  # type: ignore[no-untyped-call]
        shape.config(), dtype=dtype, **options
    )
    return model


def _silent() -> PreTrainedTokenizerFast:
    return PreTrainedTokenizerFast(  # type: ignore[no-untyped-call]
        tokenizer_object=Tokenizer(models.WordLevel({_UNKNOWN: 0}, unk_token=_UNKNOWN)), unk_token=_UNKNOWN
    )
