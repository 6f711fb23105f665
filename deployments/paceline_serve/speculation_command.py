"""``paceline speculation``: the kill switch, for a fleet that runs."""

import time
from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING, Any

import typer

from paceline.errors import ConfigError, SetupError
from paceline.rpc.replica_status import SpeculationSwitch, TargetStatus
from paceline_serve.attached_serve import AttachedServe, attached
from paceline_serve.fleet_look import look, switch_of
from paceline_serve.fleet_status import FleetStatus, Kind
from paceline_serve.names import APP_NAME, GATEWAY, TARGET

if TYPE_CHECKING:
    from ray.serve.schema import ServeApplicationSchema

_TAKEN_WITHIN_S = 60.0
_EVERY_S = 0.1
_ENABLED, _DISABLED = "speculation_enabled", "disabled_groups"


def switch_speculation(address: str | None, *, on: bool, groups: Collection[str]) -> int:
    """Turn speculation on or off, for all groups or for ``groups``. Returns the exit code: 1 if a replica lags behind.

    Returns when every gateway and target has it. Running answers follow at their next step.
    """
    with attached(address) as serve:
        check_groups(groups, look(serve))
        started = time.monotonic()
        applications = serve.deployed()
        if APP_NAME not in applications:
            raise SetupError("What runs here was not deployed by `paceline serve`, so its settings are not known.")
        application = with_switch(applications[APP_NAME], on=on, groups=groups)
        wanted = switch_of(application)
        if wanted is None:
            raise SetupError("The application that is deployed has neither gateways nor targets of ours.")
        serve.deploy({**applications, APP_NAME: application})
        lagging = _wait_taken(serve, wanted)
        if lagging:
            typer.echo(f"not every replica has it after {_TAKEN_WITHIN_S:g} s: {', '.join(lagging)}", err=True)
            return 1
        typer.echo(f"{_in_words(wanted)}; every replica has taken it within {time.monotonic() - started:.1f} s")
        typer.echo("`paceline serve FILE --address` sets what its file says (tunables.speculation_enabled).", err=True)
        return 0


def with_switch(
    application: "ServeApplicationSchema", *, on: bool, groups: Collection[str]
) -> "ServeApplicationSchema":
    """The same application with the switches set in every deployment that looks at them; all else stays."""
    deployments = [
        deployment.model_copy(update={"user_config": switched(deployment.user_config or {}, on=on, groups=groups)})
        if deployment.name in {GATEWAY, TARGET}
        else deployment
        for deployment in application.deployments
    ]
    return application.model_copy(update={"deployments": deployments})


def switched(settings: Mapping[str, Any], *, on: bool, groups: Collection[str]) -> dict[str, Any]:
    """Tunables with the switches set. ``groups`` that are off stay off when all are turned on.

    Raises ConfigError for groups where the deployed release knows the switch for all only.
    """
    if not groups:
        return {**settings, _ENABLED: on}
    if _DISABLED not in settings:
        raise ConfigError("The release that is deployed cannot turn single groups off; leave --group out.")
    disabled = set(settings[_DISABLED])
    disabled = disabled - set(groups) if on else disabled | set(groups)
    return {**settings, _DISABLED: sorted(disabled)}


def check_groups(groups: Collection[str], fleet: FleetStatus) -> None:
    """Raise ConfigError for a group that nobody knows, as far as the fleet can say."""
    known = {row.group for row in fleet.replicas if row.group is not None}
    for row in fleet.replicas:
        if row.status is not None and isinstance(row.status.role, TargetStatus):
            known |= {group.name for group in row.status.role.report.load.drafter_groups}
    known |= set(fleet.switch.disabled_groups) if fleet.switch else set()
    if unknown := sorted(set(groups) - known):
        raise ConfigError(
            f"No drafter group is called {', '.join(unknown)}. There are: {', '.join(sorted(known)) or 'none'}."
        )


def _wait_taken(serve: AttachedServe, wanted: SpeculationSwitch) -> list[str]:
    """Wait until all gateways and targets have the switches; returns those that have not, with what they say."""
    give_up_at = time.monotonic() + _TAKEN_WITHIN_S
    while True:
        fleet = look(serve)
        if fleet.switch != wanted:
            raise SetupError("Another deployment has set the switches differently meanwhile. See `paceline status`.")
        lagging = _lagging(fleet, wanted)
        if not lagging or time.monotonic() > give_up_at:
            return lagging
        time.sleep(_EVERY_S)


def _lagging(fleet: FleetStatus, wanted: SpeculationSwitch) -> list[str]:
    # One that starts gets the new settings with its start, and one that stops takes no new request.
    replicas = [row for row in fleet.replicas if row.kind is not Kind.DRAFTER and row.state in {"running", "updating"}]
    return [
        f"{row.replica_id} ({row.silent or 'it has the old setting'})"
        for row in replicas
        if row.status is None or row.status.speculation != wanted
    ]


def _in_words(switch: SpeculationSwitch) -> str:
    off = ", ".join(sorted(switch.disabled_groups))
    if not switch.enabled:
        return "speculation is off"
    return (
        f"speculation is auto, but for {off} (`paceline speculation auto --group NAME` turns one on)"
        if off
        else ("speculation is auto")
    )
