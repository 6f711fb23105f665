import json
import os
import subprocess
import sys

import pytest
import typer
from typer.testing import CliRunner

from paceline.cli import doctor
from paceline.cli.checks import Check, Status

_FINE = Check("python", Status.OK, "3.11.9")
_BROKEN = Check("torch", Status.FAIL, "missing", "Install it.")


@pytest.fixture
def run(monkeypatch):
    def run_with(checks, *arguments):
        monkeypatch.setattr(doctor, "run_checks", lambda: checks)
        app = typer.Typer()
        app.command()(doctor.doctor)
        return CliRunner().invoke(app, list(arguments))

    return run_with


def test_findings_and_advice_are_printed(run):
    """Each check is one line; advice stands below it; a failure gives exit code 1."""
    result = run([_FINE, _BROKEN])

    assert result.exit_code == 1
    assert "3.11.9" in result.output
    assert "Install it." in result.output


def test_warnings_do_not_fail(run):
    """A warning leaves the exit code at 0."""
    assert run([_FINE, Check("memory", Status.WARN, "3 GiB", "Close something.")]).exit_code == 0


def test_json_is_one_object(run):
    """--json prints one object that scripts can read."""
    result = run([_FINE, _BROKEN], "--json")

    report = json.loads(result.output)
    assert report["ok"] is False
    assert report["checks"][1] == {"name": "torch", "status": "fail", "found": "missing", "advice": "Install it."}


def test_the_real_checks_run_in_the_command(tmp_path):
    """`paceline doctor --json` on this machine prints what it found, and its exit code says what it printed."""
    environment = os.environ | {"PACELINE_CACHE": str(tmp_path)}
    command = [sys.executable, "-c", "from paceline.cli.main import main; main()", "doctor", "--json"]
    ended = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=120, check=False)

    report = json.loads(ended.stdout)
    names = [check["name"] for check in report["checks"]]
    assert names[:4] == ["python", "torch", "device", "compiler"]
    assert {"memory", "ports", "ray", "cache"} <= set(names)
    failed = [check for check in report["checks"] if check["status"] == "fail"]
    assert report["ok"] is not bool(failed)
    assert ended.returncode == (1 if failed else 0)
    assert all(check["advice"] for check in report["checks"] if check["status"] != "ok")
