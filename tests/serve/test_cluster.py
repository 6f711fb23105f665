"""`paceline serve --address` against a real Ray with its dashboard, which wants a token."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass

import httpx
import pytest

from paceline_serve.ports import free_port

pytestmark = [pytest.mark.serve, pytest.mark.model, pytest.mark.full, pytest.mark.timeout(600)]

_PACELINE = [sys.executable, "-c", "from paceline.cli.main import main; main()"]
_ENVIRONMENT = os.environ | {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": "0123456789abcdef0123456789abcdef"}
_HEAD = """
import sys

import ray

ray.init(
    address="local", num_cpus=8, include_dashboard=True, dashboard_host="127.0.0.1", dashboard_port=int(sys.argv[1]),
    object_store_memory=100 * 2**20, _node_ip_address="127.0.0.1",
)
print("up", flush=True)
sys.stdin.read()
ray.shutdown()
"""


@pytest.fixture(scope="module")
def cluster() -> Iterator[str]:
    """Address of a Ray that lasts as long as the module."""
    port = free_port("127.0.0.1")
    with subprocess.Popen(
        [sys.executable, "-c", _HEAD, str(port)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        env=_ENVIRONMENT,
        text=True,
    ) as head:
        assert head.stdout is not None
        assert any(line.strip() == "up" for line in head.stdout)
        yield f"http://127.0.0.1:{port}"
        head.communicate("", timeout=60)


@pytest.fixture(scope="module")
def deployed(cluster) -> "Deployed":
    """The application, with a draft model from the flags."""
    found = Deployed(cluster, free_port("127.0.0.1"), free_port("127.0.0.1"))
    done = found.again()
    assert (done.returncode, json.loads(done.stdout)["health"]) == (0, "ready"), done.stderr
    return found


@dataclass(frozen=True)
class Deployed:
    address: str
    http_port: int
    grpc_port: int

    def again(self, *flags: str, **environment: str) -> subprocess.CompletedProcess[str]:
        """Deploy it, with more flags than before; later ones count."""
        ports = ("--http-port", str(self.http_port), "--grpc-port", str(self.grpc_port))
        return _deploy(self.address, *ports, "--drafter", "draft_model:smollm2-135m", *flags, **environment)

    def ask(self, **fields: object) -> dict:
        body = {"prompt": "One, two, three,", "max_tokens": 12, "temperature": 0} | fields
        response = httpx.post(f"http://127.0.0.1:{self.http_port}/v1/completions", json=body, timeout=120)
        response.raise_for_status()
        return response.json()

    def pids(self) -> set[int]:
        headers = {"Authorization": f"Bearer {_ENVIRONMENT['RAY_AUTH_TOKEN']}"}
        found = httpx.get(f"{self.address}/api/serve/applications/", headers=headers, timeout=60).json()
        return {
            replica["pid"]
            for application in found["applications"].values()
            for deployment in application["deployments"].values()
            for replica in deployment["replicas"]
            if replica["state"] == "RUNNING"
        }


def _deploy(address: str, *flags: str, **environment: str) -> subprocess.CompletedProcess[str]:
    command = [*_PACELINE, "serve", "--address", address, "--json", *flags]
    return subprocess.run(
        command, capture_output=True, text=True, timeout=400, check=False, env=_ENVIRONMENT | environment
    )


def test_a_cluster_gets_the_application_with_a_draft_model_from_the_flags(deployed):
    """How much is accepted in time depends on the machine: this drafter is as slow as its target."""
    facts = deployed.ask(speculation={"mode": "on"})["paceline"]

    assert (facts["route"], facts["drafter"]) == ("speculative", "draft-model")


def test_without_the_clusters_token_nothing_is_deployed(deployed):
    """The command says what to set."""
    stranger = deployed.again(RAY_AUTH_TOKEN="f" * 32)

    assert (stranger.returncode, "wants a token" in stranger.stderr) == (2, True)


def test_doors_cannot_move_while_they_are_open(deployed):
    """Ray Serve would keep its proxies' ports without a word."""
    moved = deployed.again("--http-port", str(free_port("127.0.0.1")))

    assert (moved.returncode, f"--http-port {deployed.http_port}" in moved.stderr) == (2, True)


def test_the_same_again_restarts_nothing(deployed):
    """A deployment is a state, not an event."""
    before = deployed.pids()

    done = deployed.again()

    assert (done.returncode, deployed.pids()) == (0, before), done.stderr


def test_a_change_that_cannot_start_leaves_what_runs(deployed):
    """A missing model folder: the command names it, clients notice nothing, and the old file puts all right."""
    answer = deployed.ask()["choices"]

    failed = deployed.again("--model", "/no/such/model")
    meanwhile = deployed.ask()["choices"]
    mended = deployed.again()

    assert (failed.returncode, "no folder /no/such/model" in failed.stderr) == (2, True), failed.stderr
    assert meanwhile == answer
    assert (mended.returncode, deployed.ask()["choices"]) == (0, answer), mended.stderr
