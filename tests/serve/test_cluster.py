"""`paceline serve --address` against a real Ray with its dashboard, which wants a token."""

import json
import os
import subprocess
import sys

import httpx
import pytest

from paceline_serve.ports import free_port

pytestmark = [pytest.mark.serve, pytest.mark.model, pytest.mark.full, pytest.mark.timeout(400)]

_PACELINE = [sys.executable, "-c", "from paceline.cli.main import main; main()"]
_ENVIRONMENT = os.environ | {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": "0123456789abcdef0123456789abcdef"}
_HEAD = """
import sys

import ray

ray.init(
    address="local", num_cpus=4, include_dashboard=True, dashboard_host="127.0.0.1", dashboard_port=int(sys.argv[1]),
    object_store_memory=100 * 2**20, _node_ip_address="127.0.0.1",
)
print("up", flush=True)
sys.stdin.read()
ray.shutdown()
"""


@pytest.fixture
def cluster():
    """Address of a Ray that lasts as long as the test."""
    port = free_port("127.0.0.1")
    with subprocess.Popen(
        [sys.executable, "-c", _HEAD, str(port)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        env=_ENVIRONMENT,
        text=True,
    ) as head:
        assert any(line.strip() == "up" for line in head.stdout)
        yield f"http://127.0.0.1:{port}"
        head.communicate("", timeout=60)


def _deploy(address: str, *flags: str, **environment: str) -> subprocess.CompletedProcess:
    command = [*_PACELINE, "serve", "--address", address, "--json", *flags]
    return subprocess.run(
        command, capture_output=True, text=True, timeout=200, check=False, env=_ENVIRONMENT | environment
    )


def test_a_cluster_gets_the_application_and_an_update(cluster):
    """The command returns once the cluster answers, a draft model from the flags is linked, and doors cannot move."""
    ports = ["--http-port", str(free_port("127.0.0.1")), "--grpc-port", str(free_port("127.0.0.1"))]
    drafter = ["--drafter", "draft_model:smollm2-135m"]

    stranger = _deploy(cluster, *ports, RAY_AUTH_TOKEN="f" * 32)
    deployed = _deploy(cluster, *ports, *drafter)
    facts = json.loads(deployed.stdout)
    body = {"prompt": "One, two, three,", "max_tokens": 12, "temperature": 0, "speculation": {"mode": "on"}}
    answer = httpx.post(f"{facts['http']}/v1/completions", json=body, timeout=60).json()
    moved = _deploy(cluster, "--http-port", str(free_port("127.0.0.1")), *ports[2:], *drafter)

    assert (stranger.returncode, "wants a token" in stranger.stderr) == (2, True)
    assert (deployed.returncode, facts["health"]) == (0, "ready")
    # How much is accepted in time depends on the machine: this drafter is as slow as its target.
    assert (answer["paceline"]["route"], answer["paceline"]["drafter"]) == ("speculative", "draft-model")
    assert (moved.returncode, f"--http-port {ports[1]}" in moved.stderr) == (2, True)
