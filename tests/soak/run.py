"""One soak from start to end: truths, fleet, load and faults together, then the search for leaks."""

import asyncio
import os
import random
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import fleet as fleets
from paceline_serve.names import GATEWAY, TARGET, drafter_deployment
from soak.faults import Fault, Incident, Tormentor, draw_schedule
from soak.fleet_config import TINY, Subject, make_subject, remote_groups
from soak.jobs import draw_jobs
from soak.load import Fate, Load
from soak.probe import Probe, probing
from soak.questions import draw_questions
from soak.truth import compute_truths
from soak.verdict import Kind, Verdict
from soak.watch import Growth, Look, Vitals, lacks_in, leaks_in

FAULT_MODULES = Path(fleets.__file__).parent / "faults"
_START_WITHIN_S = 900.0  # beside other work
_QUIET_WITHIN_S = 5.0
_VITALS_EVERY_S = 2.0
_MAX_QUESTIONS = 400


@dataclass(frozen=True)
class Settings:
    """What is to be done."""

    num_requests: int
    seed: int = 0
    model: str = TINY
    at_a_time: int = 32
    with_faults: bool = True
    kill_gateways: bool = False
    planted: Mapping[str, float] = field(default_factory=dict)  # bugs that the soak must find: name and share


@dataclass
class Outcome:
    """What came of it."""

    settings: Settings
    config: dict[str, Any]
    fates: list[Fate]
    incidents: list[Incident]
    leaks: list[str]
    growth: list[Growth]
    first_look: Look
    last_look: Look
    load_s: float
    started_s: float  # of the load, by the clock of hearings and incidents
    quiet_s: float | None  # from the last answer and the last recovery until nothing was held; None: too long
    trouble: str = ""  # the fleet did not recover, or the faults could not be done


Say = Callable[[str], None]


def soak(settings: Settings, folder: Path, say: Say) -> Outcome:
    """Do it; files go to ``folder``. ``say`` hears how it goes on."""
    model_folder, switches = folder / "model", folder / "switches"
    for needed in (model_folder, switches):
        needed.mkdir(parents=True, exist_ok=True)
    subject = make_subject(settings.model, model_folder)
    load = _draw(settings, subject)
    say(f"{len(load.questions)} distinct questions, {sum(t.completion_tokens for t in load.truths)} tokens of truth")
    for name, share in settings.planted.items():
        (switches / name).write_text(str(share))
    environment = {
        "PYTHONPATH": os.pathsep.join([str(FAULT_MODULES), *filter(None, [os.environ.get("PYTHONPATH")])]),
        "PACELINE_TEST_FAULTS": ",".join(["slow_links", *settings.planted]),
        "PACELINE_TEST_SWITCHES": str(switches),
    }
    with fleets.running(folder, **environment) as fleet:
        fleet.deploy(subject.config, within_s=_START_WITHIN_S)
        with probing(fleet.gcs, list(_replicas(subject.config))) as probe:
            return _Run(settings, subject, load, fleet=fleet, probe=probe, switches=switches, say=say).run()


class _Run:
    """The part with a fleet."""

    def __init__(
        self,
        settings: Settings,
        subject: Subject,
        load: Load,
        *,
        fleet: fleets.Fleet,
        probe: Probe,
        switches: Path,
        say: Say,
    ) -> None:
        self._settings = settings
        self._subject = subject
        self._load = load
        self._fleet = fleet
        self._probe = probe
        self._expected = _replicas(subject.config)
        self._say = say
        self._vitals = Vitals(fleet)
        self._trouble = ""
        rng = random.Random(f"{settings.seed} faults")
        self._schedule = draw_schedule(rng, settings.num_requests, kill_gateways=settings.kill_gateways)
        self._tormentor = Tormentor(fleet, subject.config, switches, rng, lacks=self._lacks, say=say)

    def run(self) -> Outcome:
        """Load and faults, then the look at what is left."""
        self._tormentor.recover()
        first_look = self._probe.look()
        self._say("the fleet is whole; the load begins")
        threads = [threading.Thread(target=self._watch, daemon=True)]
        if self._settings.with_faults:
            threads.append(threading.Thread(target=self._torment, daemon=True))
        for thread in threads:
            thread.start()
        started_s = time.monotonic()
        asyncio.run(self._load.run(self._fleet.url, self._fleet.grpc_address, at_a_time=self._settings.at_a_time))
        ended_s = time.monotonic()
        self._say(f"all requests have ended after {ended_s - started_s:.0f} s")
        for thread in threads:
            thread.join()
        last_look, quiet_s = self._until_quiet()
        return Outcome(
            settings=self._settings,
            config=self._subject.config,
            fates=[_excused(fate, self._tormentor.incidents) for fate in self._load.fates],
            incidents=self._tormentor.incidents,
            leaks=leaks_in(last_look),
            growth=self._vitals.growth(self._settings.num_requests),
            first_look=first_look,
            last_look=last_look,
            load_s=ended_s - started_s,
            started_s=started_s,
            quiet_s=quiet_s,
            trouble=self._trouble,
        )

    def _lacks(self) -> list[str]:
        return lacks_in(self._probe.look(), self._expected)

    def _torment(self) -> None:
        try:
            self._tormentor.run(self._schedule, lambda: self._load.num_done)
        except Exception as error:  # noqa: BLE001  # a thread's border; the report says so
            self._trouble = f"{type(error).__name__}: {error}"

    def _watch(self) -> None:
        while (done := self._load.num_done) is not None:
            self._vitals.sample(done)
            found = sum(fate.verdict.kind.is_fault for fate in self._load.fates)
            put_in = len(self._tormentor.incidents)
            self._say(f"{done} of {len(self._load.jobs)} done, {found} not as they should be, {put_in} faults put in")
            time.sleep(_VITALS_EVERY_S)

    def _until_quiet(self) -> tuple[Look, float | None]:
        """Look until nothing is held any more, or for as long as that may take."""
        began_s = time.monotonic()
        while True:
            looked_s = time.monotonic()
            look = self._probe.look()
            if not leaks_in(look):
                self._vitals.sample(len(self._load.jobs))
                return look, looked_s - began_s
            if looked_s - began_s > _QUIET_WITHIN_S:
                return look, None
            time.sleep(0.2)


def _excused(fate: Fate, incidents: list[Incident]) -> Fate:
    """A gateway that is killed takes its clients' connections along: these answers are cut, not lost."""
    started_s, ended_s = fate.hearing.started_s, fate.hearing.started_s + fate.hearing.total_s
    killed_s = [incident.started_s for incident in incidents if incident.fault is Fault.KILL_GATEWAY]
    cut = any(started_s <= when_s <= ended_s for when_s in killed_s)
    return replace(fate, verdict=Verdict(Kind.CUT)) if cut and fate.verdict.kind is Kind.LOST else fate


def _draw(settings: Settings, subject: Subject) -> Load:
    checked = subject.checked
    rng = random.Random(settings.seed)
    vocab_size = _vocab_size(subject)
    questions = draw_questions(rng, min(_MAX_QUESTIONS, settings.num_requests), vocab_size)
    jobs = draw_jobs(rng, settings.num_requests, questions, subject.groups)
    return Load(jobs, questions, asyncio.run(compute_truths(questions, subject.folder, checked)))


def _vocab_size(subject: Subject) -> int:
    from paceline.modeling.loader import load_config  # noqa: PLC0415  # imports torch

    return int(load_config(subject.folder).vocab_size)


def _replicas(config: dict[str, Any]) -> dict[str, int]:
    """Replicas that each deployment must have."""
    return {GATEWAY: config["gateway"]["replicas"], TARGET: config["target"]["replicas"]} | {
        drafter_deployment(group): config["drafters"][group]["replicas"] for group in remote_groups(config)
    }
