"""Drafting methods by name. An implementation is imported when it is first asked for."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import NamedTuple, Protocol

from paceline.config.schema import DrafterConfig, is_outside_class
from paceline.drafting.cascade_facts import cascade_facts, check_level
from paceline.drafting.drafter import Drafter
from paceline.drafting.host import DrafterHost
from paceline.drafting.matching import DrafterFacts, TargetFacts, check_match
from paceline.errors import ConfigError
from paceline.modeling.freed_memory import return_freed_memory


class BuiltDrafter(NamedTuple):
    """A drafter and what it tells a target about itself."""

    drafter: Drafter
    facts: DrafterFacts


class DrafterFactory(Protocol):
    """Builds one drafting method."""

    def __call__(self, group: str, config: DrafterConfig, host: DrafterHost) -> BuiltDrafter:
        """Load what the method needs; blocks. Raises SetupError kinds where that fails."""


def _ngram(group: str, config: DrafterConfig, host: DrafterHost) -> BuiltDrafter:  # noqa: ARG001
    # Lazy, like all factories: a replica imports only the method that it runs.
    from paceline.drafting.ngram import NgramDrafter  # noqa: PLC0415

    drafter = NgramDrafter(min_match=config.min_match_tokens, max_match=config.max_match_tokens)
    return BuiltDrafter(drafter, DrafterFacts("ngram", group))


def _draft_model(group: str, config: DrafterConfig, host: DrafterHost) -> BuiltDrafter:
    # Torch and Transformers take seconds to import; n-gram replicas never need them.
    from paceline.drafting.build_draft_model import load_draft_model  # noqa: PLC0415
    from paceline.drafting.draft_model import DraftModelDrafter  # noqa: PLC0415

    model = load_draft_model(group, config, host)
    drafter = DraftModelDrafter(
        model.runner,
        eos_token_ids=model.eos_token_ids,
        max_law_tokens=config.max_law_tokens,
        draft_ids=model.draft_ids,
    )
    return BuiltDrafter(drafter, model.facts)


def _head(group: str, config: DrafterConfig, host: DrafterHost) -> BuiltDrafter:
    from paceline.drafting.build_heads import build_head  # noqa: PLC0415  # lazy, as above

    return BuiltDrafter(*build_head(group, config, host))


def _cascade(group: str, config: DrafterConfig, host: DrafterHost) -> BuiltDrafter:
    from paceline.drafting.build_draft_model import load_draft_model  # noqa: PLC0415  # lazy, as above
    from paceline.drafting.cascade import CascadeDrafter  # noqa: PLC0415

    built = build_drafter(group, config.levels[0], host)
    for level, section in enumerate(config.levels[1:], 1):
        model = load_draft_model(group, section, host)
        check_level(model.facts, built.facts, group=group, level=level)
        drafter = CascadeDrafter(
            model.runner,
            built.drafter,
            eos_token_ids=model.eos_token_ids,
            group=group,
            level=level,
            max_law_tokens=section.max_law_tokens,
            metrics=host.metrics,
            draft_ids=model.draft_ids,
        )
        built = BuiltDrafter(drafter, cascade_facts(model.facts, built.facts))
    return built


def _outside(group: str, config: DrafterConfig, host: DrafterHost) -> BuiltDrafter:
    from paceline.drafting.outside import facts_of, make_outside  # noqa: PLC0415  # lazy, as above

    drafter = make_outside(config.method, config.options, host)
    return BuiltDrafter(drafter, facts_of(drafter, group))


DRAFTERS: Mapping[str, DrafterFactory] = MappingProxyType(
    {
        "ngram": _ngram,
        "draft_model": _draft_model,
        "medusa": _head,
        "eagle": _head,
        "mtp": _head,
        "cascade": _cascade,
    }
)


def build_drafter(group: str, config: DrafterConfig, host: DrafterHost | None = None) -> BuiltDrafter:
    """Build the drafter of a group, in the process that will run it; ``host`` is what is known there.

    Does not compare it with the target: a replica behind a link is checked at each handshake.
    Raises ConfigError for an unknown method.
    """
    factory = _outside if is_outside_class(config.method) else DRAFTERS.get(config.method)
    if factory is None:
        raise ConfigError(
            f"There is no drafting method '{config.method}'. Known methods: {', '.join(DRAFTERS)}; "
            "a class of your own is named as package.module:Class."
        )
    built = factory(group, config, host or DrafterHost())
    return_freed_memory()
    return built


def build_matching_drafter(
    group: str,
    config: DrafterConfig,
    target: TargetFacts,
    host: DrafterHost | None = None,
) -> Drafter:
    """Build the drafter of a group inside a target's own process, through the same gate as a link.

    Raises LinkRefusedError if it does not fit the target.
    """
    built = build_drafter(group, config, host)
    check_match(target, built.facts, group=group)
    return built.drafter
