"""``paceline doctor``: looks at the machine and says what to do."""

import json
from typing import Annotated

import typer

from paceline.cli.checks import Check, Status, run_checks

_COLORS = {Status.OK: "green", Status.WARN: "yellow", Status.FAIL: "red"}


def doctor(
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object instead of text.")] = False,
) -> None:
    """Check Python, torch, device, memory, ports, Ray and the cache. Exit code 1 if something must be mended."""
    checks = run_checks()
    failed = any(check.status is Status.FAIL for check in checks)
    if as_json:
        print(json.dumps({"ok": not failed, "checks": [_as_json(check) for check in checks]}, indent=2))
    else:
        for check in checks:
            _print_check(check)
    if failed:
        raise typer.Exit(1)


def _as_json(check: Check) -> dict[str, str]:
    return {"name": check.name, "status": check.status.value, "found": check.found, "advice": check.advice}


def _print_check(check: Check) -> None:
    status = typer.style(f"{check.status.value:<4}", fg=_COLORS[check.status])
    typer.echo(f"{status}  {check.name:<14} {check.found}")
    if check.advice:
        typer.echo(f"      {'':<14} → {check.advice}")
