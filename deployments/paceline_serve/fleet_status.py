"""The whole fleet at one moment: what Ray Serve says of it, and what its replicas say themselves."""

import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any

from paceline.rpc.replica_status import ReplicaStatus, SpeculationSwitch, TargetStatus
from paceline_serve.names import APP_NAME, GATEWAY, TARGET, group_of

_STALLED_S = 10.0  # work that has waited this long on a target is worth a word
_HEALTHY = "HEALTHY"
_RUNNING = "RUNNING"


class Kind(Enum):
    """What a replica does."""

    GATEWAY = "gateway"
    TARGET = "target"
    DRAFTER = "drafter"


@dataclass(frozen=True, slots=True)
class ReplicaRow:
    """One replica."""

    replica_id: str
    deployment: str
    state: str  # of Ray Serve in lower case, or "draining"
    node: str  # its address
    pid: int | None
    age_s: float
    status: ReplicaStatus | None = None
    silent: str = ""  # why there is no status; empty where none was asked for

    @property
    def kind(self) -> Kind:
        """What it does."""
        return {GATEWAY: Kind.GATEWAY, TARGET: Kind.TARGET}.get(self.deployment, Kind.DRAFTER)

    @property
    def group(self) -> str | None:
        """Drafter group; None for the others."""
        return group_of(self.deployment)


@dataclass(frozen=True, slots=True)
class DeploymentRow:
    """One group of replicas."""

    name: str
    application: str
    status: str  # of Ray Serve
    message: str
    wanted: int
    replicas: tuple[ReplicaRow, ...]


@dataclass(frozen=True, slots=True)
class FleetStatus:
    """The fleet. ``switch`` is what the deployed configuration says; None where it says nothing."""

    deployments: tuple[DeploymentRow, ...]
    applications: Mapping[str, tuple[str, str]]  # Ray Serve's status and message by name
    switch: SpeculationSwitch | None

    @property
    def replicas(self) -> tuple[ReplicaRow, ...]:
        """All replicas."""
        return tuple(replica for deployment in self.deployments for replica in deployment.replicas)

    @property
    def problems(self) -> list[str]:
        """What is wrong, in one sentence each; empty: all is well."""
        return list(_problems(self))


def fleet_status(
    details: Mapping[str, Any],
    statuses: Mapping[str, ReplicaStatus | str],
    switch: SpeculationSwitch | None,
    *,
    now: float | None = None,
) -> FleetStatus:
    """Put it together from Ray Serve's details of our applications and from what replicas answered, by id.

    ``now`` is wall-clock time: ages of replicas that do not tell their own are told by Ray Serve's clock.
    """
    now = time.time() if now is None else now
    deployments = [
        _deployment(name, application, deployment, statuses, now)
        for application, found in details.items()
        for name, deployment in found["deployments"].items()
    ]
    order = {GATEWAY: 0, TARGET: 1}
    return FleetStatus(
        deployments=tuple(sorted(deployments, key=lambda row: (order.get(row.name, 2), row.name))),
        applications={name: (found["status"], found.get("message", "")) for name, found in details.items()},
        switch=switch,
    )


def _deployment(
    name: str, application: str, found: Mapping[str, Any], statuses: Mapping[str, ReplicaStatus | str], now: float
) -> DeploymentRow:
    replicas = sorted(found["replicas"], key=lambda replica: (replica.get("start_time_s") or 0, replica["replica_id"]))
    return DeploymentRow(
        name,
        application,
        found["status"],
        found.get("message", ""),
        found.get("target_num_replicas") or 0,
        tuple(_replica(name, replica, statuses.get(replica["replica_id"]), now) for replica in replicas),
    )


def _replica(deployment: str, found: Mapping[str, Any], answer: ReplicaStatus | str | None, now: float) -> ReplicaRow:
    status = answer if isinstance(answer, ReplicaStatus) else None
    state = found["state"].lower()
    if status is not None and status.draining:
        state = "draining"
    started = found.get("start_time_s") or now
    return ReplicaRow(
        replica_id=found["replica_id"],
        deployment=deployment,
        state=state,
        node=found.get("node_ip") or "",
        pid=found.get("pid"),
        age_s=status.uptime_s if status is not None else max(0.0, now - started),
        status=status,
        silent=answer if isinstance(answer, str) else "",
    )


def _problems(fleet: FleetStatus) -> Iterator[str]:
    for name, (status, message) in fleet.applications.items():
        if status != _RUNNING and not any(row.application == name for row in fleet.deployments):
            yield _sentence(f"application {name} is {status.lower()}", message)
    for row in fleet.deployments:
        # One that takes new settings goes on serving.
        running = sum(replica.state in {"running", "updating"} for replica in row.replicas)
        if row.status != _HEALTHY:
            yield _sentence(f"{row.name} is {row.status.lower()}", row.message)
        if running < row.wanted:
            yield f"{row.name} has {running} of {row.wanted} replicas running"
        elif row.name in {GATEWAY, TARGET} and not running:
            yield f"{row.name} has no replica"
    if not any(row.name == TARGET for row in fleet.deployments):
        yield f"application {APP_NAME} has no targets"
    for replica in fleet.replicas:
        yield from _problems_of(replica, fleet.switch)


def _problems_of(replica: ReplicaRow, switch: SpeculationSwitch | None) -> Iterator[str]:
    name = f"{replica.kind.value} {replica.replica_id}"
    if replica.silent and replica.state == "running":
        yield f"{name} says nothing: {replica.silent}"
    status = replica.status
    if status is None or replica.state != "running":
        return
    if switch is not None and status.speculation is not None and status.speculation != switch:
        yield f"{name} does not have the deployed speculation switches yet"
    if isinstance(status.role, TargetStatus):
        report = status.role.report
        if report.stalled_s > _STALLED_S:
            yield f"{name} has got nowhere for {report.stalled_s:.0f} s"
        for group in report.load.drafter_groups:
            if not group.live:
                yield _sentence(f"drafter group {group.name} is not live at {name}", group.detail)


def _sentence(fact: str, detail: str) -> str:
    """A fact with the first line of what is known of it."""
    first = next((line.strip() for line in detail.splitlines() if line.strip()), "")
    return f"{fact}: {first[:200]}" if first else fact
