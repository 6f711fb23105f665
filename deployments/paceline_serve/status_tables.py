"""A fleet's status as tables for people, and as a document for programs."""

from collections.abc import Iterable
from typing import Any

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from paceline.rpc.replica_status import DrafterStatus, GatewayStatus, ReplicaStatus, SpeculationSwitch, TargetStatus
from paceline_serve.fleet_status import DeploymentRow, FleetStatus, Kind, ReplicaRow

_MINUTE_S, _HOUR_S, _DAY_S = 60, 3600, 86400
_NOTHING = "-"
_COLUMNS = {
    Kind.GATEWAY: ("queued", "streams"),
    Kind.TARGET: ("running", "waiting", "held", "KV used", "tokens/s", "drafter groups"),
    Kind.DRAFTER: ("method", "weights", "links", "sessions", "pending", "busy"),
}


def render(fleet: FleetStatus) -> RenderableType:
    """Tables of all groups, the switches, and what is wrong in the last line."""
    parts: list[RenderableType] = []
    for deployment in fleet.deployments:
        parts += [_table(deployment), Text()]
    parts.append(Text(f"speculation: {_switch_in_words(fleet.switch)}"))
    problems = fleet.problems
    parts.append(Text(f"not healthy: {'; '.join(problems)}" if problems else "healthy"))
    return Group(*parts)


def document(fleet: FleetStatus) -> dict[str, Any]:
    """The same as JSON; docs/guides/operate.md describes it."""
    switch = fleet.switch
    return {
        "healthy": not fleet.problems,
        "problems": fleet.problems,
        "speculation": None if switch is None else _switch(switch),
        "applications": {
            name: {"status": status, "message": message} for name, (status, message) in fleet.applications.items()
        },
        "groups": [
            {
                "name": row.name,
                "application": row.application,
                "status": row.status,
                "wanted": row.wanted,
                "replicas": [_replica(replica) for replica in row.replicas],
            }
            for row in fleet.deployments
        ],
    }


def age(seconds: float) -> str:
    """A time span with its two largest units."""
    whole = int(seconds)
    if whole < _MINUTE_S:
        return f"{whole}s"
    if whole < _HOUR_S:
        return f"{whole // _MINUTE_S}m{whole % _MINUTE_S:02}s"
    if whole < _DAY_S:
        return f"{whole // _HOUR_S}h{whole % _HOUR_S // _MINUTE_S:02}m"
    return f"{whole // _DAY_S}d{whole % _DAY_S // _HOUR_S:02}h"


def _table(deployment: DeploymentRow) -> Table:
    rows = deployment.replicas
    kind = rows[0].kind if rows else Kind.DRAFTER
    title = f"{deployment.name}: {len(rows)} of {deployment.wanted}, {deployment.status.lower()}"
    table = Table(title=title, title_justify="left", box=None, pad_edge=False, padding=(0, 2, 0, 0))
    for name in ("replica", "node", "state", "age", "release", *_COLUMNS[kind]):
        table.add_column(name, overflow="fold")
    for row in rows:
        release = row.status.release if row.status else ""
        cells = (row.replica_id, row.node, row.state, age(row.age_s), release or _NOTHING, *_cells(row))
        table.add_row(*(Text(cell) for cell in cells))
    return table


def _cells(row: ReplicaRow) -> Iterable[str]:
    match row.status:
        case ReplicaStatus(role=TargetStatus() as target):
            load = target.report.load
            used = 1 - load.free_pages / load.total_pages if load.total_pages else 0.0
            yield from (str(load.running), str(load.waiting), str(target.report.num_held), f"{used:.0%}")
            yield f"{load.decode_tokens_per_s:.0f}"
            yield "\n".join(_group_lines(target)) or "none"
        case ReplicaStatus(role=DrafterStatus() as drafter):
            load_of = drafter.load
            yield from (drafter.method, drafter.weights_version or _NOTHING)
            yield from (str(drafter.num_links), str(load_of.sessions), str(load_of.pending), f"{load_of.busy:.0%}")
        case ReplicaStatus(role=GatewayStatus() as gateway):
            yield from (str(gateway.queued), str(gateway.streams))
        case _:
            yield row.silent or _NOTHING
            yield from [_NOTHING] * (len(_COLUMNS[row.kind]) - 1)


def _group_lines(target: TargetStatus) -> Iterable[str]:
    seen = {group.name: group for group in target.groups}
    for group in target.report.load.drafter_groups:
        name = group.name if group.name == group.method else f"{group.name} ({group.method})"
        line = f"{name}: {'live' if group.live else group.detail or 'not live'}"
        experience = seen.get(group.name)
        if experience and experience.reply_ms is not None:
            line += f", {experience.reply_ms:.1f} ms"
        if experience and experience.tested:
            line += f", alpha {experience.accepted / experience.tested:.2f}"
        yield line


def _switch_in_words(switch: SpeculationSwitch | None) -> str:
    if switch is None:
        return "not known"
    off = ", ".join(sorted(switch.disabled_groups))
    if not switch.enabled:
        return "off" + (f"; also groups that are off by themselves: {off}" if off else "")
    return f"auto, but for {off}" if off else "auto"


def _switch(switch: SpeculationSwitch) -> dict[str, Any]:
    return {"enabled": switch.enabled, "disabled_groups": sorted(switch.disabled_groups)}


def _replica(row: ReplicaRow) -> dict[str, Any]:
    facts: dict[str, Any] = {
        "replica": row.replica_id,
        "kind": row.kind.value,
        "group": row.group,
        "state": row.state,
        "node": row.node,
        "pid": row.pid,
        "age_s": round(row.age_s, 1),
        "silent": row.silent or None,
    }
    status = row.status
    if status is None:
        return facts
    facts |= {
        "release": status.release,
        "protocol": list(status.protocol),
        "speculation": None if status.speculation is None else _switch(status.speculation),
    }
    match status.role:
        case TargetStatus() as target:
            facts |= _target(target)
        case DrafterStatus() as drafter:
            facts |= {
                "method": drafter.method,
                "weights_version": drafter.weights_version,
                "incarnation": drafter.incarnation,
                "links": drafter.num_links,
                "sessions": drafter.load.sessions,
                "pending": drafter.load.pending,
                "busy": round(drafter.load.busy, 3),
            }
        case GatewayStatus() as gateway:
            facts |= {"queued": gateway.queued, "streams": gateway.streams}
    return facts


def _target(target: TargetStatus) -> dict[str, Any]:
    report, seen = target.report, {group.name: group for group in target.groups}
    return {
        "model": target.model,
        "system_fingerprint": report.system_fingerprint,
        "running": report.load.running,
        "waiting": report.load.waiting,
        "held": report.num_held,
        "total_pages": report.load.total_pages,
        "free_pages": report.load.free_pages,
        "tokens_per_s": round(report.load.decode_tokens_per_s, 1),
        "stalled_s": round(report.stalled_s, 1),
        "drafter_groups": [
            {
                "name": group.name,
                "method": group.method,
                "live": group.live,
                "detail": group.detail,
                "reply_ms": seen[group.name].reply_ms if group.name in seen else None,
                "tested": seen[group.name].tested if group.name in seen else 0,
                "accepted": seen[group.name].accepted if group.name in seen else 0,
            }
            for group in report.load.drafter_groups
        ],
    }
