"""What a replica says about itself to operators: records, and their only translator to messages."""

from dataclasses import dataclass

from paceline.core.load import DrafterLoad
from paceline.rpc.codec_link import decode_drafter_load, encode_drafter_load
from paceline.rpc.codec_target import LoadReport, decode_report, encode_report
from paceline.rpc.codec_versions import decode_versions, encode_versions
from paceline.rpc.protocol import OURS, Versions
from paceline.v1 import replica_pb2


@dataclass(frozen=True, slots=True)
class SpeculationSwitch:
    """The operator's switches as one replica has them."""

    enabled: bool
    disabled_groups: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class GroupExperience:
    """What one target has seen of a drafter group since it started."""

    name: str
    reply_ms: float | None = None  # mean time from a request to its answer; None: no link, or none so far
    tested: int = 0
    accepted: int = 0


@dataclass(frozen=True, slots=True)
class TargetStatus:
    """A target replica at one moment."""

    model: str
    report: LoadReport
    groups: tuple[GroupExperience, ...] = ()


@dataclass(frozen=True, slots=True)
class DrafterStatus:
    """A drafter replica at one moment."""

    group: str
    method: str
    weights_version: str
    incarnation: str
    num_links: int
    load: DrafterLoad


@dataclass(frozen=True, slots=True)
class GatewayStatus:
    """A gateway replica at one moment."""

    queued: int  # requests that wait for a place
    streams: int  # token streams that are open to targets


RoleStatus = TargetStatus | DrafterStatus | GatewayStatus


@dataclass(frozen=True, slots=True)
class ReplicaStatus:
    """One replica at one moment."""

    role: RoleStatus
    release: str = ""
    uptime_s: float = 0.0
    draining: bool = False
    speculation: SpeculationSwitch | None = None  # None: the replica does not look at it
    protocol: Versions = OURS


def encode_status(status: ReplicaStatus) -> replica_pb2.StatusResponse:
    """A status as a message."""
    message = replica_pb2.StatusResponse(
        protocol=encode_versions(status.protocol),
        release=status.release,
        uptime_ms=round(status.uptime_s * 1e3),
        draining=status.draining,
    )
    if status.speculation is not None:
        message.speculation.enabled = status.speculation.enabled
        message.speculation.disabled_groups.extend(sorted(status.speculation.disabled_groups))
    match status.role:
        case TargetStatus() as target:
            message.target.CopyFrom(_encode_target(target))
        case DrafterStatus() as drafter:
            message.drafter.CopyFrom(
                replica_pb2.DrafterStatus(
                    group=drafter.group,
                    method=drafter.method,
                    weights_version=drafter.weights_version,
                    incarnation=drafter.incarnation,
                    link_count=drafter.num_links,
                    load=encode_drafter_load(drafter.load),
                )
            )
        case GatewayStatus() as gateway:
            message.gateway.CopyFrom(
                replica_pb2.GatewayStatus(queued_count=gateway.queued, stream_count=gateway.streams)
            )
    return message


def decode_status(message: replica_pb2.StatusResponse) -> ReplicaStatus | None:
    """A status from a message; None where a newer release has a role that is not known here."""
    role = _decode_role(message)
    if role is None:
        return None
    switch = message.speculation
    return ReplicaStatus(
        role,
        release=message.release,
        uptime_s=message.uptime_ms / 1e3,
        draining=message.draining,
        speculation=SpeculationSwitch(switch.enabled, frozenset(switch.disabled_groups))
        if message.HasField("speculation")
        else None,
        protocol=decode_versions(message.protocol),
    )


def _encode_target(target: TargetStatus) -> replica_pb2.TargetStatus:
    groups = [
        replica_pb2.GroupExperience(
            name=group.name, reply_ms=group.reply_ms, tested_count=group.tested, accepted_count=group.accepted
        )
        for group in target.groups
    ]
    return replica_pb2.TargetStatus(model=target.model, load=encode_report(target.report), groups=groups)


def _decode_role(message: replica_pb2.StatusResponse) -> RoleStatus | None:
    match message.WhichOneof("role"):
        case "target":
            groups = tuple(
                GroupExperience(
                    group.name,
                    group.reply_ms if group.HasField("reply_ms") else None,
                    group.tested_count,
                    group.accepted_count,
                )
                for group in message.target.groups
            )
            return TargetStatus(message.target.model, decode_report(message.target.load), groups)
        case "drafter":
            drafter = message.drafter
            return DrafterStatus(
                drafter.group,
                drafter.method,
                drafter.weights_version,
                drafter.incarnation,
                drafter.link_count,
                decode_drafter_load(drafter.load),
            )
        case "gateway":
            return GatewayStatus(message.gateway.queued_count, message.gateway.stream_count)
    return None
