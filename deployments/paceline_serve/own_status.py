"""What each kind of replica tells operators about itself."""

import time
from collections.abc import Callable

from paceline.config.schema import Tunables
from paceline.engine.backend import EngineBackend
from paceline.rpc.link_server import DrafterServicer
from paceline.rpc.protocol import Versions
from paceline.rpc.replica_status import (
    DrafterStatus,
    GatewayStatus,
    GroupExperience,
    ReplicaStatus,
    RoleStatus,
    SpeculationSwitch,
    TargetStatus,
)
from paceline.rpc.target_server import TargetServicer
from paceline.telemetry import catalogue
from paceline.telemetry.metrics import Metrics
from paceline_serve.target_drafters import DrafterLinks


class OwnStatus:
    """A replica's status, put together when it is asked for."""

    def __init__(
        self,
        read_role: Callable[[], RoleStatus],
        *,
        release: str,
        versions: Versions,
        is_draining: Callable[[], bool] = bool,
        tunables: Tunables | None = None,
    ) -> None:
        """``tunables`` has the operator's switches, and is kept up to date; None: the replica does not look at them."""
        self._read_role = read_role
        self._release = release
        self._versions = versions
        self._started = time.monotonic()
        self._is_draining = is_draining
        self.tunables = tunables

    def __call__(self) -> ReplicaStatus:
        """The status at this moment."""
        return ReplicaStatus(
            self._read_role(),
            release=self._release,
            uptime_s=time.monotonic() - self._started,
            draining=self._is_draining(),
            speculation=_switch(self.tunables) if self.tunables else None,
            protocol=self._versions,
        )


def _switch(tunables: Tunables) -> SpeculationSwitch:
    return SpeculationSwitch(tunables.speculation_enabled, frozenset(tunables.disabled_groups))


def target_status(
    backend: EngineBackend, servicer: TargetServicer, links: DrafterLinks, metrics: Metrics
) -> TargetStatus:
    """A target's own part."""
    report = servicer.report()
    reply_ms = links.reply_times_ms()
    groups = tuple(
        GroupExperience(
            group.name,
            reply_ms.get(group.name),
            round(metrics.value(catalogue.TESTED_TOKENS, group=group.name)),
            round(metrics.value(catalogue.ACCEPTED_TOKENS, group=group.name)),
        )
        for group in report.load.drafter_groups
    )
    return TargetStatus(backend.identity.name, report, groups)


def drafter_status(servicer: DrafterServicer) -> DrafterStatus:
    """A drafter's own part."""
    facts = servicer.facts
    return DrafterStatus(
        facts.group, facts.method, facts.weights_version, servicer.incarnation, servicer.num_links, servicer.load
    )


def gateway_status(metrics: Metrics) -> GatewayStatus:
    """A gateway's own part."""
    return GatewayStatus(round(metrics.value(catalogue.QUEUED_REQUESTS)), round(metrics.value(catalogue.OPEN_STREAMS)))
