"""``paceline drain``: takes one replica out of the fleet; its answers go on elsewhere."""

import time
from collections.abc import Callable

import typer

from paceline.errors import ConfigError, SetupError
from paceline.rpc.replica_client import drain_replica
from paceline.rpc.replica_status import DrafterStatus, TargetStatus
from paceline_serve.attached_serve import AttachedServe, attached
from paceline_serve.fleet_look import look
from paceline_serve.fleet_status import FleetStatus, Kind, ReplicaRow

_GONE_WITHIN_S = 300.0  # answers move after `target.migrate_after_s`; Ray Serve then takes some seconds
_EVERY_S = 0.5


def drain(address: str | None, wanted: str, *, wait: bool) -> int:
    """Drain the replica whose id begins with ``wanted``. Returns the exit code: 1 if it has not gone in time."""
    with attached(address) as serve:
        fleet = look(serve)
        row = find_replica(fleet, wanted)
        name = f"{row.kind.value} {row.replica_id}"
        endpoint = serve.endpoints({}).get(row.replica_id)
        if endpoint is None:
            raise SetupError(f"The address of {name} is not known here; it is {row.state}. Try again.")
        if gap := gap_without(row, fleet):
            typer.echo(gap, err=True)
        drain_replica(endpoint)
        typer.echo(f"{name} takes no new work")
        if not wait:
            return 0
        gone = _wait_gone(serve, row.replica_id, lambda text: typer.echo(f"{name}: {text}"))
        if gone:
            typer.echo(f"{name} has gone; `paceline status` shows what Ray Serve starts in its place")
        else:
            typer.echo(f"{name} is still there after {_GONE_WITHIN_S:g} s; it goes on draining", err=True)
        return 0 if gone else 1


def find_replica(fleet: FleetStatus, wanted: str) -> ReplicaRow:
    """The one replica that can be meant. Raises ConfigError with those that could have been."""
    found = [row for row in fleet.replicas if wanted and row.replica_id.startswith(wanted)]
    if len(found) != 1:
        choice = found or [row for row in fleet.replicas if row.kind is not Kind.GATEWAY]
        names = ", ".join(f"{row.replica_id} ({row.deployment})" for row in choice) or "none"
        raise ConfigError(
            f"'{wanted}' is the beginning of several replicas' ids: {names}."
            if found
            else f"No replica's id begins with '{wanted}'. There are: {names}."
        )
    row = found[0]
    if row.kind is Kind.GATEWAY:
        raise ConfigError(
            f"{row.replica_id} is a gateway: clients' connections end at it, so answers cannot move away from it. "
            "Change gateway.replicas or release and deploy again; Ray Serve then lets it finish its answers."
        )
    return row


def gap_without(row: ReplicaRow, fleet: FleetStatus) -> str | None:
    """What nobody does until the replica is replaced; None where others do its work."""
    group = [
        other for other in fleet.replicas if other.deployment == row.deployment and other.replica_id != row.replica_id
    ]
    if any(other.state in {"running", "updating"} for other in group):
        return None
    if row.kind is Kind.TARGET:
        return (
            "No other target takes requests. Answers that run end here; new ones wait until then and for the "
            "replacement, at most tunables.max_queue_wait_s, and fail after that."
        )
    return f"No other replica of group {row.group} runs. Answers are plain until it is replaced."


def progress(row: ReplicaRow) -> str:
    """How far a replica has got with draining."""
    status = row.status
    if row.silent:
        return row.silent
    if status is None or not status.draining:
        return f"is {row.state}"
    match status.role:
        case TargetStatus(report=report):
            num = report.num_held
            return f"{num} answers to finish or to hand over" if num else "idle; Ray Serve is about to replace it"
        case DrafterStatus(num_links=num):
            return f"{num} links to end" if num else "idle; Ray Serve is about to replace it"
    return f"is {row.state}"


def _wait_gone(serve: AttachedServe, replica_id: str, say: Callable[[str], None]) -> bool:
    """Wait until Ray Serve does not know the replica any more; say what changes."""
    said = ""
    give_up_at = time.monotonic() + _GONE_WITHIN_S
    while time.monotonic() < give_up_at:
        row = next((row for row in look(serve).replicas if row.replica_id == replica_id), None)
        if row is None:
            return True
        if (text := progress(row)) != said:
            say(text)
            said = text
        time.sleep(_EVERY_S)
    return False
