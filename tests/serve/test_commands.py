"""The commands as a user runs them, in processes of their own."""

import json
import os
import signal
import subprocess
import sys

import httpx
import psutil
import pytest

from paceline_serve.ports import free_port

pytestmark = [pytest.mark.serve, pytest.mark.model, pytest.mark.timeout(400)]

_PACELINE = [sys.executable, "-c", "from paceline.cli.main import main; main()"]
# Nobody listens there: whatever goes through the proxy fails.
_ENVIRONMENT = os.environ | {"HTTP_PROXY": "http://127.0.0.1:9", "http_proxy": "http://127.0.0.1:9", "NO_PROXY": ""}


def _terminate(serving: subprocess.Popen) -> None:
    serving.send_signal(signal.SIGTERM)


def _press_ctrl_c(serving: subprocess.Popen) -> None:
    """As a terminal does it: the whole group hears of it, and again when the user is impatient."""
    os.killpg(serving.pid, signal.SIGINT)
    try:
        serving.wait(timeout=1)
    except subprocess.TimeoutExpired:
        os.killpg(serving.pid, signal.SIGINT)


def _runs(process: psutil.Process) -> bool:
    """Whether it still runs; one that ended may wait for a parent that is slow to notice."""
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


@pytest.mark.parametrize("stop", [_press_ctrl_c, pytest.param(_terminate, marks=pytest.mark.full)])
def test_serve_runs_until_it_is_told_to_stop(stop, tmp_path):
    """`paceline serve` prints addresses that answer at once, and a signal ends every process that it started."""
    http_port, grpc_port = free_port("127.0.0.1"), free_port("127.0.0.1")
    command = [*_PACELINE, "serve", "--json", "--http-port", str(http_port), "--grpc-port", str(grpc_port)]
    with (
        (tmp_path / "stderr").open("w") as errors,
        subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=errors, env=_ENVIRONMENT, start_new_session=True
        ) as serving,
    ):
        printed = json.loads(serving.stdout.readline())
        health = httpx.get(f"{printed['http']}/health", timeout=5)
        children = psutil.Process(serving.pid).children(recursive=True)
        stop(serving)
        serving.communicate(timeout=60)

    assert health.status_code == 200
    assert printed["grpc"] == f"127.0.0.1:{grpc_port}"
    pids = {pid for group in printed["pids"].values() for pid in group}
    assert len(pids) == 2  # gateway and target, which drafts itself
    assert pids <= {child.pid for child in children}
    assert [child for child in children if _runs(child)] == []
    assert serving.returncode == 0
    assert "Traceback" not in (tmp_path / "stderr").read_text()


def test_serve_names_the_flag_for_a_busy_port(platform):
    """A second platform on the same port stops before it starts anything, with the flag that helps."""
    command = [*_PACELINE, "serve", "--http-port", str(platform.local.config.gateway.http_port)]

    refused = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)

    assert refused.returncode == 2
    assert "--http-port" in refused.stderr
    assert "Traceback" not in refused.stderr


def test_demo_holds_what_it_claims():
    """`paceline demo` ends with exit code 0, and every claim in its output is a yes, also behind a web proxy."""
    shown = subprocess.run(
        [*_PACELINE, "demo"], capture_output=True, text=True, timeout=300, check=False, env=_ENVIRONMENT
    )

    assert shown.returncode == 0, shown.stdout
    assert shown.stdout.count(": yes (") == 7
    assert ": NO (" not in shown.stdout
