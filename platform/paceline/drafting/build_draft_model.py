"""Loads draft models, whole ones and those that take their embedding, output head and tokenizer from the target."""

import hashlib
from pathlib import Path
from typing import NamedTuple

import torch

from paceline.config.schema import DrafterConfig
from paceline.drafting.host import DrafterHost
from paceline.drafting.matching import DrafterFacts
from paceline.errors import ConfigError
from paceline.modeling.heads.draft_vocabulary import read_vocabulary
from paceline.modeling.loader import load_config, load_model
from paceline.modeling.resolve import resolve_model
from paceline.modeling.runner import ModelRunner
from paceline.text.tokenizer import TextTokenizer
from paceline.verification.draft_ids import DraftIds

_PAGE_SIZE = 16  # tokens per K/V page of a drafter
_TOKENIZER_FILES = ("tokenizer.json", "tokenizer_config.json", "tokenizer.model", "vocab.json")


class LoadedDraftModel(NamedTuple):
    """A draft model that can be run, and what it tells a target about itself."""

    runner: ModelRunner
    eos_token_ids: tuple[int, ...]
    draft_ids: DraftIds | None  # tokens of its logits; None: the whole vocabulary
    facts: DrafterFacts


def load_draft_model(group: str, config: DrafterConfig, host: DrafterHost) -> LoadedDraftModel:
    """Load the draft model of a group, or of a level of its cascade.

    A draft vocabulary beside the weights cuts the output head to those rows: over a large vocabulary it costs more
    than the layers. Raises ConfigError without a ``model``, and SetupError kinds where it cannot be read or borrows
    from a target that is not known.
    """
    if config.model is None:
        raise ConfigError(f"Drafter group '{group}' needs 'model': a name, a folder or a hub id.")
    folder = resolve_model(config.model, config.revision)
    token_ids = read_vocabulary(folder, load_config(folder).vocab_size)
    loaded = load_model(
        folder,
        dtype=config.dtype,
        device=host.device,
        num_layers=config.num_layers,
        lender=host.target_folder,
        output_ids=token_ids,
    )
    tokenizer = TextTokenizer.load(_tokenizer_folder(folder, host), vocab_size=loaded.vocab_size)
    version = loaded.weights_version
    if token_ids is not None:
        version = hashlib.sha256(f"{version} {token_ids}".encode()).hexdigest()[:16]
    return LoadedDraftModel(
        runner=ModelRunner(loaded, num_pages=-(-config.kv_cache_tokens // _PAGE_SIZE), page_size=_PAGE_SIZE),
        eos_token_ids=tokenizer.eos_token_ids,
        draft_ids=None if token_ids is None else DraftIds(token_ids, device=torch.device(loaded.device)),
        facts=DrafterFacts("draft_model", group, tokenizer.vocabulary, loaded.context_length, version),
    )


def _tokenizer_folder(folder: Path, host: DrafterHost) -> Path:
    """The draft model's own files, or the target's: drafts are ids of the target in either case."""
    own = any((folder / name).is_file() for name in _TOKENIZER_FILES)
    return folder if own or host.target_folder is None else host.target_folder
