"""Links of one target replica to its drafters elsewhere."""

import asyncio
import logging
from collections.abc import Callable, Mapping
from typing import Protocol

from ray import serve

from paceline.config.schema import PeerConfig
from paceline.drafting.drafter import Drafter
from paceline.drafting.matching import TargetFacts
from paceline.rpc.remote_drafter import RemoteDrafter
from paceline.telemetry.metrics import Metrics
from paceline_serve.membership import Members, Membership
from paceline_serve.names import app_of, drafter_deployment
from paceline_serve.peer_metadata import endpoints_of
from paceline_serve.router_start import start_router

logger = logging.getLogger(__name__)


class DrafterUser(Protocol):
    """What is told of remote groups that come and go: the engine's backend."""

    def add_drafter(self, group: str, drafter: Drafter) -> None:
        """Take up a group."""

    def remove_drafter(self, group: str, then: Callable[[], None]) -> None:
        """Let go of a group, then call ``then``."""


def watch_group(group: str) -> None:
    """Have the replicas of a drafter group pushed to this process, whether it is deployed already or later."""
    deployment = drafter_deployment(group)
    start_router(serve.get_deployment_handle(deployment, app_of(deployment), _check_exists=False))


class DrafterLinks:
    """Links to the remote groups that the deployment has at this moment.

    One that does not fit the target is refused when it answers, and is never more than a group that is not live.
    """

    def __init__(
        self,
        user: DrafterUser,
        target: TargetFacts,
        *,
        peer: PeerConfig,
        membership: Membership,
        metrics: Metrics,
        watch: Callable[[str], None] = watch_group,
    ) -> None:
        """Used from the running asyncio loop; links run on it."""
        self._user = user
        self._target = target
        self._peer = peer
        self._membership = membership
        self._metrics = metrics
        self._watch = watch
        self._loop = asyncio.get_running_loop()
        self._drafters: dict[str, tuple[str, RemoteDrafter]] = {}  # method and link by group
        self._unwatch: dict[str, Callable[[], None]] = {}  # by group
        self._watched: set[str] = set()  # groups, also former ones: Ray Serve goes on telling of them

    def apply(self, groups: Mapping[str, str]) -> None:
        """Have links to exactly these groups, given by name with their method."""
        for group, (method, drafter) in list(self._drafters.items()):
            if groups.get(group) != method:
                del self._drafters[group]
                self._unwatch.pop(group)()
                self._user.remove_drafter(group, drafter.shutdown)
                logger.info("drafter group %s has left", group)
        for group, method in groups.items():
            if group not in self._drafters:
                self._add(group, method)

    def reply_times_ms(self) -> dict[str, float | None]:
        """Mean time from a request to its answer by group; None where there has been none."""
        return {group: drafter.rtt_ms for group, (_, drafter) in self._drafters.items()}

    def close(self) -> None:
        """Close all links."""
        for _, drafter in self._drafters.values():
            drafter.shutdown()

    def _add(self, group: str, method: str) -> None:
        drafter = RemoteDrafter(
            group, hello=self._target, loop=self._loop, peer=self._peer, method=method, metrics=self._metrics
        )
        self._drafters[group] = (method, drafter)
        self._user.add_drafter(group, drafter)
        if group not in self._watched:
            self._watched.add(group)
            self._watch(group)
        self._unwatch[group] = self._membership.watch(drafter_deployment(group), _endpoints_setter(group, drafter))


def _endpoints_setter(group: str, drafter: RemoteDrafter) -> Callable[[Members], None]:
    def on_members(members: Members) -> None:
        logger.info("drafter group %s has %s replicas", group, len(members))
        drafter.set_endpoints(endpoints_of(members))

    return on_members
