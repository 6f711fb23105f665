"""Targets that live and do nothing: told from those that are busy, replaced, and their answers go on elsewhere."""

import os
import signal
import time
from pathlib import Path

import pytest

import fleet as fleets
from paceline.v1 import common_pb2
from paceline_serve.names import TARGET

pytestmark = [pytest.mark.serve, pytest.mark.model, pytest.mark.full, pytest.mark.timeout(900)]

_FAULTS = Path(fleets.__file__).parent / "faults"
_STEP_TIMEOUT_S = 30  # more than the longest pass below
_HELD_S = 20
_TOKENS = 120
_CONFIG = {
    "model": {"source": "smollm2-135m"},
    "engine": {
        "kv_cache_tokens": 4096, "threads": 1, "step_timeout_s": _STEP_TIMEOUT_S, "first_step_timeout_s": 60,
    },
    "target": {"replicas": 2},
}  # fmt: skip


@pytest.fixture(scope="module")
def switches(tmp_path_factory):
    return tmp_path_factory.mktemp("switches")


@pytest.fixture(scope="module")
def fleet(tmp_path_factory, switches):
    environment = {
        "PYTHONPATH": os.pathsep.join(filter(None, [str(_FAULTS), os.environ.get("PYTHONPATH", "")])),
        "PACELINE_TEST_FAULTS": "stuck_engine",
        "PACELINE_TEST_SWITCHES": str(switches),
        "PACELINE_TEST_HELD_S": str(_HELD_S),
    }
    with fleets.running(tmp_path_factory.mktemp("fleet"), **environment) as running:
        running.deploy(_CONFIG, within_s=480)
        yield running


def _answer(fleet, on_message=lambda count: None):
    sampling = common_pb2.SamplingParams(temperature=0.0, max_tokens=_TOKENS, ignore_eos=True)
    return fleet.generate(on_message=on_message, sampling=sampling)


def _disturbed(fleet, switches, name):
    """An answer in whose middle a fault is switched on; returns it and the pid that has the fault."""

    def on_message(count):
        if count == 3:
            (switches / name).write_text("1")

    answer = _answer(fleet, on_message)
    (switches / name).unlink()
    return answer, int((switches / f"{name}.pid").read_text())


def _two_others(fleet, pid):
    """Whether Ray Serve has replaced ``pid``."""
    pids = fleet.pids(TARGET)
    return len(pids) == 2 and pid not in pids


def test_an_engine_that_is_stuck_is_replaced_and_its_answer_goes_on(fleet, switches):
    """Work waits and no step ends: the stream moves within the limit, with the same ids, and the process goes."""
    undisturbed = _answer(fleet)
    answer, pid = _disturbed(fleet, switches, "stuck_engine")

    assert answer.ids == undisturbed.ids
    assert answer.summary.resumed_count == 1
    fleet.eventually(lambda: _two_others(fleet, pid), "a new target", within_s=180)


def test_a_target_that_does_not_answer_at_all_is_replaced_and_its_answer_goes_on(fleet):
    """A stopped process cannot even say that it is not well: the silence is noticed by gateways and by Ray Serve."""
    undisturbed = _answer(fleet)
    stopped = []

    def stop_the_busy_one(count):
        if count == 3:
            stopped.append(_busiest(fleet))
            os.kill(stopped[0], signal.SIGSTOP)

    answer = _answer(fleet, stop_the_busy_one)

    assert answer.ids == undisturbed.ids
    assert answer.summary.resumed_count == 1
    fleet.eventually(lambda: _two_others(fleet, stopped[0]), "a new target", within_s=240)


def test_a_long_pass_that_stops_all_else_in_its_process_is_no_reason_to_kill_it(fleet, switches):
    """20 s without the interpreter's lock: health checks are late, and the replica stays."""
    before = fleet.pids(TARGET)
    _, pid = _disturbed(fleet, switches, "held_gil")
    time.sleep(_HELD_S + 3 * 2)  # three more health checks

    assert pid in before
    assert fleet.pids(TARGET) == before


def _busiest(fleet):
    """The target process that computes now."""

    def seconds(pid):
        with Path(f"/proc/{pid}/stat").open() as stat:
            return int(stat.read().rsplit(")", 1)[1].split()[11])

    pids = fleet.pids(TARGET)
    first = [seconds(pid) for pid in pids]
    time.sleep(0.5)
    return max(zip(pids, first, strict=True), key=lambda entry: seconds(entry[0]) - entry[1])[0]
