"""Faults, and when they come: a schedule drawn from a seed, and the thread that keeps to it."""

import contextlib
import os
import random
import signal
import time
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Any, NamedTuple

from fleet import Fleet
from paceline_serve.names import GATEWAY, TARGET, drafter_deployment
from soak.fleet_config import remote_groups

_RECOVERY_S = 600.0  # beside other work; some seconds otherwise


class Fault(Enum):
    """What happens to the fleet."""

    KILL_TARGET = "kill -9 of a target"
    KILL_DRAFTER = "kill -9 of a drafter"
    SLOW_LINKS = "slow links"
    PAUSE_DRAFTER = "a drafter stands still"
    PAUSE_TARGET = "a target stands still"
    STALL_TARGET = "a target stands still for 12 s"
    DRAIN_TARGET = "a target is drained"
    TUNABLES = "tunables change"
    KILL_GATEWAY = "kill -9 of a gateway"

    @property
    def takes_target(self) -> bool:
        """Whether a target is away meanwhile: the other one must be there."""
        return self in {Fault.KILL_TARGET, Fault.PAUSE_TARGET, Fault.STALL_TARGET, Fault.DRAIN_TARGET}


_FIRST = (Fault.KILL_TARGET, Fault.SLOW_LINKS, Fault.KILL_DRAFTER, Fault.PAUSE_DRAFTER)
_ALL = (*_FIRST, Fault.KILL_TARGET, Fault.PAUSE_TARGET, Fault.STALL_TARGET, Fault.DRAIN_TARGET, Fault.TUNABLES)
_SPACING = 150  # requests from one fault to the next


class Appointment(NamedTuple):
    """A fault, and the number of ended requests at which it is due."""

    after: int
    fault: Fault


@dataclass
class Incident:
    """A fault that happened."""

    fault: Fault
    started_s: float
    whole_s: float = float("inf")  # when all was as before
    note: str = ""

    def overlaps(self, from_s: float, to_s: float) -> bool:
        """Whether the fleet was disturbed at some time in this span."""
        return self.started_s <= to_s and from_s <= self.whole_s


def draw_schedule(rng: random.Random, num_requests: int, *, kill_gateways: bool) -> list[Appointment]:
    """Every kind of fault in turn, in an order of the seed's; a short run has the four that take least time."""
    count = max(len(_FIRST), num_requests // _SPACING)
    drawn: list[Fault] = list(_FIRST)
    while len(drawn) < count:
        bag = [*_ALL, *([Fault.KILL_GATEWAY] if kill_gateways else [])]
        rng.shuffle(bag)
        drawn += bag
    step = num_requests / (count + 1)
    return [Appointment(int((place + 1) * step), fault) for place, fault in enumerate(drawn[:count])]


class Tormentor:
    """Does one fault after the other, each to a fleet that has recovered from the one before."""

    def __init__(
        self,
        fleet: Fleet,
        config: dict[str, Any],
        switches: Path,
        rng: random.Random,
        *,
        lacks: Callable[[], list[str]],
        say: Callable[[str], None],
    ) -> None:
        """``lacks`` looks at the fleet and says what it lacks; nothing where all is as it should be."""
        self._fleet = fleet
        self._config = config
        self._switches = switches
        self._rng = rng
        self._lacks = lacks
        self._say = say
        self.incidents: list[Incident] = []

    def run(self, schedule: list[Appointment], num_done: Callable[[], int | None]) -> None:
        """Keep to the schedule; ``num_done``: ended requests, None once all have. Returns when all is whole."""
        for appointment in schedule:
            while (done := num_done()) is not None and done < appointment.after:
                time.sleep(0.05)
            if done is not None and appointment.fault.takes_target:
                self.recover()
            if num_done() is None:
                break
            self._strike(appointment.fault)
        self.recover()

    def recover(self) -> None:
        """Wait until the fleet is whole, and note the time for whatever was open."""
        give_up_at = time.monotonic() + _RECOVERY_S
        while lacks := self._lacks():
            assert time.monotonic() < give_up_at, f"not whole within {_RECOVERY_S:g} s: {'; '.join(lacks)}"
            time.sleep(0.2)
        for incident in self.incidents:
            incident.whole_s = min(incident.whole_s, time.monotonic())

    def _strike(self, fault: Fault) -> None:
        incident = Incident(fault, time.monotonic())
        self.incidents.append(incident)
        self._say(f"fault: {fault.value}")
        incident.note = self._act(fault)
        self._say(f"fault: {fault.value}, {incident.note}")

    def _act(self, fault: Fault) -> str:
        target, drafter = self._victim(TARGET), self._victim(drafter_deployment(self._rng.choice(self._groups)))
        acts: dict[Fault, Callable[[], str]] = {
            Fault.KILL_TARGET: lambda: _kill(target),
            Fault.KILL_DRAFTER: lambda: _kill(drafter),
            Fault.KILL_GATEWAY: lambda: _kill(self._victim(GATEWAY)),
            Fault.PAUSE_DRAFTER: lambda: _pause(drafter, self._rng.uniform(1, 4)),
            Fault.PAUSE_TARGET: lambda: _pause(target, self._rng.uniform(0.5, 2)),
            Fault.STALL_TARGET: lambda: _pause(target, 12),
            Fault.SLOW_LINKS: lambda: self._slow_links(self._rng.uniform(2, 5)),
            Fault.DRAIN_TARGET: self._drain,
            Fault.TUNABLES: self._change_tunables,
        }
        return acts[fault]()

    @property
    def _groups(self) -> list[str]:
        return remote_groups(self._config)

    def _victim(self, deployment: str) -> int:
        return self._rng.choice(self._fleet.pids(deployment) or [0])

    def _slow_links(self, for_s: float) -> str:
        switch = self._switches / "slow_links"
        switch.write_text("0.5")
        time.sleep(for_s)
        switch.unlink()
        return f"for {for_s:.1f} s"

    def _drain(self) -> str:
        replica = self._rng.choice(self._replicas())
        done = self._fleet.command("drain", replica, within_s=_RECOVERY_S)
        return f"{replica}: exit {done.returncode} {done.stderr[-200:]}"

    def _replicas(self) -> list[str]:
        deployments = self._fleet.applications()["paceline"]["deployments"]
        return [replica["replica_id"] for replica in deployments[TARGET]["replicas"] if replica["state"] == "RUNNING"]

    def _change_tunables(self) -> str:
        changes = {
            "max_draft_tokens": self._rng.randint(0, 6),
            "draft_adaptive": self._rng.random() < 0.3,
            "speculation_enabled": self._rng.random() < 0.8,
        }
        tunables = self._config["tunables"] | changes
        self._fleet.deploy(self._config | {"tunables": tunables}, within_s=_RECOVERY_S)
        return str(changes)


def _kill(pid: int) -> str:
    if pid:
        os.kill(pid, signal.SIGKILL)
    return f"process {pid}"


def _pause(pid: int, for_s: float) -> str:
    if pid:
        os.kill(pid, signal.SIGSTOP)
        time.sleep(for_s)
        with contextlib.suppress(ProcessLookupError):  # it was replaced meanwhile
            os.kill(pid, signal.SIGCONT)
    return f"process {pid} for {for_s:.1f} s"
