"""Makes the drafters that draft from the target's features: Medusa, EAGLE and MTP, in either place."""

from typing import NamedTuple

import torch

from paceline.config.schema import DrafterConfig
from paceline.drafting.drafter import Drafter
from paceline.drafting.head_drafter import HeadDrafter
from paceline.drafting.host import DrafterHost
from paceline.drafting.matching import DrafterFacts
from paceline.drafting.medusa import LentFeatures, MedusaDrafter
from paceline.drafting.static_tree import read_static_tree
from paceline.errors import ConfigError, LinkRefusedError
from paceline.kvcache.page_pool import PagePool
from paceline.modeling.feature_store import FeatureStore
from paceline.modeling.head_memory import HeadMemory
from paceline.modeling.head_runner import HeadRunner, head_store
from paceline.modeling.heads.checkpoint import load_head
from paceline.modeling.heads.draft_head import DraftHead
from paceline.modeling.heads.head_spec import HeadSpec
from paceline.modeling.heads.medusa_head import MedusaHead
from paceline.modeling.heads.target_weights import TargetWeights, weights_of_folder, weights_of_loaded
from paceline.modeling.medusa_runner import MedusaRunner
from paceline.modeling.resolve import resolve_model
from paceline.text.tokenizer import TextTokenizer

_PAGE_SIZE = 16  # tokens per K/V page away from the target


class BuiltHead(NamedTuple):
    """A drafter with a head, and what it tells a target about itself."""

    drafter: Drafter
    facts: DrafterFacts


def build_head(group: str, config: DrafterConfig, host: DrafterHost) -> BuiltHead:
    """Load the head of a group; without a ``model``, the MTP modules that the target brings.

    Raises ConfigError where the folder holds another method's head or the target is not known, SetupError kinds where
    the head cannot be read, and LinkRefusedError where the target of this process keeps no such features.
    """
    if host.target_folder is None:
        raise ConfigError(f"Drafter group '{group}' drafts from features of a target, and no target's files are known.")
    folder = host.target_folder if config.model is None else resolve_model(config.model, config.revision)
    target = _target_weights(host)
    head = load_head(folder, target)
    if head.spec.method != config.method:
        raise ConfigError(
            f"Drafter group '{group}' has method {config.method}, but {folder} holds a head for {head.spec.method}; "
            "change one of both."
        )
    tokenizer = TextTokenizer.load(host.target_folder, vocab_size=target.vocab_size)
    ends = tokenizer.eos_token_ids
    if isinstance(head, MedusaHead):
        drafter: Drafter = MedusaDrafter(
            MedusaRunner(head),
            eos_token_ids=ends,
            tree=read_static_tree(folder, head.spec.num_modules),
            source=_lent_features(head.spec, host),
            max_law_tokens=config.max_law_tokens,
        )
    else:
        drafter = HeadDrafter(
            HeadRunner(head, _memory(head, config, host)),
            eos_token_ids=ends,
            lender=None if host.local is None else host.local.pages,
            max_law_tokens=config.max_law_tokens,
            tree=read_static_tree(folder, None),
        )
    spec = head.spec
    facts = DrafterFacts(
        spec.method, group, tokenizer.vocabulary, spec.context_length, spec.weights_version, spec.feature
    )
    return BuiltHead(drafter, facts)


def _target_weights(host: DrafterHost) -> TargetWeights:
    if host.local is not None:
        return weights_of_loaded(host.local.loaded, host.target_folder)
    if host.target_folder is None:
        raise ConfigError("the target's files are not known")
    return weights_of_folder(host.target_folder, dtype=getattr(torch, host.target_dtype), device=host.device)


def _memory(head: DraftHead, config: DrafterConfig, host: DrafterHost) -> HeadMemory:
    """Of the target's own pages, or of a pool of the head's own."""
    if host.local is not None:
        runner = host.local.runner
        memory = HeadMemory(runner.pool, head_store(head, runner.pool), _kept(head.spec, host))
        runner.attach(memory)
        return memory
    pool = PagePool(-(-config.kv_cache_tokens // _PAGE_SIZE), _PAGE_SIZE)
    device = head.target.embedding.device
    features = FeatureStore(pool.num_pages * _PAGE_SIZE, head.spec.feature.size, device=device)
    return HeadMemory(pool, head_store(head, pool), features)


def _lent_features(spec: HeadSpec, host: DrafterHost) -> LentFeatures | None:
    return None if host.local is None else LentFeatures(host.local.pages, _kept(spec, host))


def _kept(spec: HeadSpec, host: DrafterHost) -> FeatureStore:
    """What the target of this process keeps of the feature that the head reads."""
    stores = {} if host.local is None else host.local.runner.features
    if spec.feature not in stores:
        kept = ", ".join(f"{facts.kind} of {facts.size}" for facts in stores) or "none"
        raise LinkRefusedError("features", kept, f"{spec.feature.kind} of {spec.feature.size}")
    return stores[spec.feature]
