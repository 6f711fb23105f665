"""The drafters of one target replica: built in its process, or linked to replicas elsewhere."""

import asyncio
import logging
from collections.abc import Callable, Mapping
from pathlib import Path

from paceline.config.schema import DeploymentConfig, ModelConfig
from paceline.drafting.drafter import Drafter
from paceline.drafting.matching import TargetFacts
from paceline.drafting.registry import build_matching_drafter
from paceline.modeling.loader import load_config
from paceline.rpc.remote_drafter import RemoteDrafter
from paceline.telemetry.metrics import Metrics
from paceline.text.tokenizer import TextTokenizer
from paceline_serve.membership import Members, Membership
from paceline_serve.names import drafter_deployment
from paceline_serve.peer_metadata import endpoints_of

logger = logging.getLogger(__name__)


def target_facts(folder: Path, model: ModelConfig) -> TargetFacts:
    """What drafters must match, read without loading any weights. Raises ModelRefusedError."""
    config = load_config(folder)
    tokenizer = TextTokenizer.load(folder, vocab_size=config.vocab_size)
    own_limit = config.max_position_embeddings
    return TargetFacts(tokenizer.vocabulary, min(model.max_context_tokens or own_limit, own_limit))


def build_drafters(
    config: DeploymentConfig,
    target: TargetFacts,
    *,
    membership: Membership,
    loop: asyncio.AbstractEventLoop,
    metrics: Metrics,
) -> dict[str, Drafter]:
    """Drafters by group, in the order of the configuration. Blocks while models load.

    Raises LinkRefusedError if a drafter in this process does not fit the target; one behind a link is
    checked when it answers, and is never more than a group that is not live.
    """
    drafters: dict[str, Drafter] = {}
    for group, section in config.drafters.items():
        if section.place == "remote":
            drafter = RemoteDrafter(
                group, hello=target, loop=loop, peer=config.peer, method=section.method, metrics=metrics
            )
            membership.watch(drafter_deployment(group), _endpoints_setter(group, drafter))
            drafters[group] = drafter
        else:
            drafters[group] = build_matching_drafter(group, section, target, device=config.model.device)
    return drafters


def close_links(drafters: Mapping[str, Drafter]) -> None:
    """Close the links to remote groups."""
    for drafter in drafters.values():
        if isinstance(drafter, RemoteDrafter):
            drafter.shutdown()


def _endpoints_setter(group: str, drafter: RemoteDrafter) -> Callable[[Members], None]:
    def on_members(members: Members) -> None:
        logger.info("drafter group %s has %s replicas", group, len(members))
        drafter.set_endpoints(endpoints_of(members))

    return on_members
