"""Faults are done to processes as the schedule says; here to processes that only sleep."""

import random
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from soak import faults
from soak.faults import Appointment, Fault, Tormentor

CONFIG = {"drafters": {"ngram": {"method": "ngram", "replicas": 2}}, "tunables": {"max_draft_tokens": 4}}


class SleepingFleet:
    """Two processes that sleep for each deployment, and a record of what an operator did."""

    def __init__(self) -> None:
        self.processes: dict[str, list[subprocess.Popen]] = {}
        self.done: list[tuple] = []

    def pids(self, deployment: str) -> list[int]:
        if deployment not in self.processes:
            sleep = [sys.executable, "-c", "import time; time.sleep(600)"]
            self.processes[deployment] = [subprocess.Popen(sleep) for _ in range(2)]
        return [process.pid for process in self.processes[deployment] if process.poll() is None]

    def applications(self) -> dict:
        replicas = [{"replica_id": "old", "state": "STOPPING"}, {"replica_id": "new", "state": "RUNNING"}]
        return {"paceline": {"deployments": {"Target": {"replicas": replicas}}}}

    def command(self, *words: str, within_s: float) -> subprocess.CompletedProcess:
        self.done.append(words)
        return subprocess.CompletedProcess(words, 0, "", "")

    def deploy(self, config: dict, *, within_s: float) -> None:
        self.done.append(("deploy", config))

    def ended(self, deployment: str) -> list[int]:
        return [code for process in self.processes.get(deployment, ()) if (code := process.poll()) is not None]


@pytest.fixture
def fleet():
    fleet = SleepingFleet()
    yield fleet
    for process in (process for processes in fleet.processes.values() for process in processes):
        process.kill()
        process.wait()


@pytest.fixture
def torment(fleet, tmp_path: Path, monkeypatch):
    """Does some faults, without the pauses; gives what was looked at and said."""

    def run(*wanted: Fault, lacks=list) -> Tormentor:
        monkeypatch.setattr(faults.time, "sleep", lambda _: None)
        tormentor = Tormentor(fleet, CONFIG, tmp_path, random.Random(1), lacks=lacks, say=lambda _: None)
        tormentor.run([Appointment(0, fault) for fault in wanted], lambda: 1)
        return tormentor

    return run


@pytest.mark.parametrize(
    ("fault", "deployment"),
    [
        (Fault.KILL_TARGET, "Target"),
        (Fault.KILL_DRAFTER, "drafter-ngram"),
        (Fault.KILL_GATEWAY, "Gateway"),
    ],
)
def test_a_kill_ends_one_process_of_its_kind(fault, deployment, fleet, torment):
    """The other one lives on."""
    (incident,) = torment(fault).incidents
    hit = [process for process in fleet.processes[deployment] if incident.note == f"process {process.pid}"]

    assert [process.wait(30) for process in hit] == [-signal.SIGKILL]
    assert len(fleet.pids(deployment)) == 1


@pytest.mark.parametrize("fault", [Fault.PAUSE_TARGET, Fault.STALL_TARGET, Fault.PAUSE_DRAFTER])
def test_a_pause_leaves_everybody_alive(fault, fleet, torment):
    """Halted processes go on."""
    torment(fault)

    assert not any(fleet.ended(deployment) for deployment in fleet.processes)


def test_drains_and_settings_go_the_operators_way(fleet, torment):
    """A replica that runs is drained by the command; tunables change by another deployment of the same config."""
    torment(Fault.DRAIN_TARGET, Fault.TUNABLES)
    (drain, deploy) = fleet.done

    assert drain == ("drain", "new")
    assert deploy[1]["drafters"] == CONFIG["drafters"]
    assert deploy[1]["tunables"].keys() > CONFIG["tunables"].keys()


def test_slow_links_are_switched_off_again(tmp_path, torment):
    """No file is left for the fault to find."""
    torment(Fault.SLOW_LINKS)

    assert list(tmp_path.iterdir()) == []


def test_a_target_is_taken_only_from_a_whole_fleet(fleet, torment):
    """The fault waits until nothing is lacking."""
    lacking = [["Target has 1 of 2 replicas"], ["Target has 1 of 2 replicas"]]
    looks = []

    def lacks() -> list[str]:
        looks.append(len(fleet.processes))
        return lacking.pop() if lacking else []

    tormentor = torment(Fault.KILL_TARGET, lacks=lacks)

    assert looks[:3] == [0, 0, 0]
    assert [incident.fault for incident in tormentor.incidents] == [Fault.KILL_TARGET]
    assert tormentor.incidents[0].whole_s < float("inf")
