"""Loads a model from a folder: safetensors only, no code from the folder."""

import json
import logging
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import torch
from safetensors import SafetensorError
from transformers import AutoConfig, AutoModelForCausalLM, PreTrainedConfig, PreTrainedModel
from transformers.utils import logging as transformers_logging

from paceline.errors import ModelRefusedError, ModelUnavailableError
from paceline.kernels.decoder_layers import decoder_kernels
from paceline.modeling.attention import ATTENTION_NAME, register_attention
from paceline.modeling.compiled_network import CompiledNetwork, has_llama_shape
from paceline.modeling.families import TESTED_FAMILIES, check_config, check_files
from paceline.modeling.freed_memory import return_freed_memory
from paceline.modeling.lent_tensors import EMBEDDING, OUTPUT, lend
from paceline.modeling.network import ModuleNetwork, Network
from paceline.modeling.packed_linear import pack_linears
from paceline.modeling.weights_version import weights_version

logger = logging.getLogger(__name__)

_DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}


@dataclass(frozen=True, slots=True)
class LoadedModel:
    """A model ready to run, and the facts about it that others need.

    On CPU the weights of linear layers are packed, and ``model`` has lost them: run ``network``.
    """

    model: PreTrainedModel
    network: Network
    vocab_size: int  # ids that it knows; rows of the output head, unless that was cut to some
    hidden_size: int
    num_layers: int
    num_kv_heads: int
    head_dim: int
    context_length: int  # tokens
    dtype: torch.dtype
    device: str
    weights_version: str  # differs when weights, config or number of layers differ


def load_model(
    folder: Path,
    *,
    dtype: str,
    device: str = "cpu",
    num_layers: int | None = None,
    lender: Path | None = None,
    output_ids: Sequence[int] | None = None,
) -> LoadedModel:
    """Load the causal language model in ``folder``; ``num_layers`` keeps only its first layers.

    ``lender``: folder of a target, from which a draft model takes the embedding and output head that it leaves out.
    ``output_ids``: tokens that get a logit each, in this order; default: all.
    Raises ModelUnavailableError if the folder holds no readable model, and ModelRefusedError if the
    model would be wrong here.
    """
    if device == "cuda" and not torch.cuda.is_available():
        raise ModelRefusedError(
            "PyTorch sees no CUDA device here; set device to cpu, or install a CUDA build of torch."
        )
    config = load_config(folder)
    check_files(folder)
    if num_layers is not None:
        _truncate(config, num_layers)
    model = _read(folder, config, _DTYPES[dtype], lender)
    model.to(device)  # type: ignore[arg-type]
    model.train(mode=False)
    model.requires_grad_(requires_grad=False)
    logger.info("loaded %s: %s, %s layers, %s", folder, config.model_type, config.num_hidden_layers, dtype)
    loaded = _loaded(
        model,
        dtype=_DTYPES[dtype],
        device=device,
        version=weights_version(folder, num_layers),
        output_ids=output_ids,
    )
    return_freed_memory()
    return loaded


def _read(folder: Path, config: PreTrainedConfig, dtype: torch.dtype, lender: Path | None) -> PreTrainedModel:
    """The model with its weights; Transformers would fill missing ones with random numbers."""
    register_attention()
    model: PreTrainedModel
    try:
        with quiet_transformers():
            model, report = AutoModelForCausalLM.from_pretrained(  # type: ignore[misc]
                folder,
                config=config,
                dtype=dtype,
                attn_implementation=ATTENTION_NAME,
                use_safetensors=True,
                trust_remote_code=False,
                local_files_only=True,
                output_loading_info=True,
            )
    except (OSError, ValueError, RuntimeError, SafetensorError) as error:
        raise ModelUnavailableError(f"The model in {folder} could not be loaded: {error}") from error
    missing: list[str] = sorted(report["missing_keys"])  # type: ignore[has-type]
    if missing and lender is not None:
        missing = lend(model, missing, lender)
    if missing and set(missing) <= {EMBEDDING, OUTPUT}:
        raise ModelUnavailableError(
            f"The model in {folder} lacks '{missing[0]}': it is a draft model that borrows it from its target, and no "
            "target's files are known here."
        )
    if missing:
        raise ModelUnavailableError(
            f"The model in {folder} lacks {len(missing)} weights, such as '{missing[0]}'; download it again."
        )
    return model


@contextmanager
def quiet_transformers() -> Iterator[None]:
    """No progress bar, and no table of the weights that a cut model leaves out."""
    verbosity = transformers_logging.get_verbosity()
    transformers_logging.set_verbosity_error()  # type: ignore[no-untyped-call]
    transformers_logging.disable_progress_bar()  # type: ignore[no-untyped-call]
    try:
        yield
    finally:
        transformers_logging.set_verbosity(verbosity)
        transformers_logging.enable_progress_bar()  # type: ignore[no-untyped-call]


def load_config(folder: Path) -> PreTrainedConfig:
    """The checked configuration in ``folder``, a new object on each call."""
    try:
        raw = json.loads((folder / "config.json").read_text("utf-8"))
    except (OSError, ValueError) as error:
        raise ModelUnavailableError(f"Cannot read {folder / 'config.json'} ({error}).") from error
    try:
        config: PreTrainedConfig = AutoConfig.from_pretrained(folder, trust_remote_code=False, local_files_only=True)
    except (OSError, ValueError, KeyError) as error:
        raise ModelRefusedError(
            f"The model is refused: its architecture '{raw.get('model_type')}' is not tested here; tested are "
            f"{', '.join(TESTED_FAMILIES.values())}."
        ) from error
    check_config(config)
    return config


def _truncate(config: PreTrainedConfig, num_layers: int) -> None:
    """Keep the first ``num_layers`` layers."""
    if not 1 <= num_layers <= config.num_hidden_layers:
        raise ModelRefusedError(f"num_layers is {num_layers}, but the model has {config.num_hidden_layers} layers.")
    config.num_hidden_layers = num_layers
    if getattr(config, "layer_types", None):
        config.layer_types = config.layer_types[:num_layers]


def _loaded(
    model: PreTrainedModel, *, dtype: torch.dtype, device: str, version: str, output_ids: Sequence[int] | None
) -> LoadedModel:
    config = model.config
    head: torch.nn.Linear = model.get_output_embeddings()  # type: ignore[no-untyped-call]
    num_heads = config.num_attention_heads
    vocab_size = head.weight.shape[0]
    if output_ids is not None:
        model.set_output_embeddings(_some_rows(head, output_ids))  # type: ignore[no-untyped-call]
    return LoadedModel(
        model=model,
        network=fastest_network(model, device),
        vocab_size=vocab_size,
        hidden_size=config.hidden_size,
        num_layers=config.num_hidden_layers,
        num_kv_heads=getattr(config, "num_key_value_heads", None) or num_heads,
        head_dim=getattr(config, "head_dim", None) or config.hidden_size // num_heads,
        context_length=config.max_position_embeddings,
        dtype=dtype,
        device=device,
        weights_version=version,
    )


def _some_rows(head: torch.nn.Linear, token_ids: Sequence[int]) -> torch.nn.Linear:
    """An output head of the rows of ``token_ids`` alone."""
    rows = torch.tensor(token_ids, device=head.weight.device)
    cut = torch.nn.Linear(head.in_features, len(rows), bias=head.bias is not None, device="meta")
    cut.weight = torch.nn.Parameter(head.weight.detach()[rows], requires_grad=False)
    if head.bias is not None:
        cut.bias = torch.nn.Parameter(head.bias.detach()[rows], requires_grad=False)
    return cut


def fastest_network(model: PreTrainedModel, device: str) -> Network:
    """The fastest way to run ``model`` here; takes its linear layers' weights on CPU."""
    kernels = decoder_kernels() if device == "cpu" else None
    if kernels is not None and has_llama_shape(model):
        return CompiledNetwork(model, kernels)
    if device == "cpu":
        pack_linears(model)
    return ModuleNetwork(model)
