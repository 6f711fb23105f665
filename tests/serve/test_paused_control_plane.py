"""A fleet whose Ray Serve controller and GCS stand still, or die, under load."""

import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import pairwise
from typing import Any

import psutil
import pytest

import fleet
from fleet import Fleet
from paceline.v1 import common_pb2
from paceline_serve.local_ray import is_alive
from steady_load import SteadyLoad

pytestmark = [pytest.mark.serve, pytest.mark.model, pytest.mark.timeout(500)]

_NUM_STREAMS = 8
_PAUSE_S = 10.0
_AROUND_S = 3.0  # before and after it
_CONTROLLER, _GCS = "ray::ServeController", "/gcs_server"
_CONFIG: dict[str, Any] = {
    "model": {"source": "smollm2-135m", "dtype": "bfloat16"},
    "engine": {"kv_cache_tokens": 16384, "max_running": 16, "threads": 1},
    "target": {"replicas": 2},
    "drafters": {"ngram": {"method": "ngram", "place": "remote"}},
}


class Streams:
    """Clients that each read one answer, the same again and again, and note when messages come."""

    def __init__(self, running: Fleet) -> None:
        self._fleet = running
        self._ends = threading.Event()
        self._message_times: list[list[float]] = [[] for _ in range(_NUM_STREAMS)]
        alone = [running.start(self._answer, stream) for stream in range(_NUM_STREAMS)]
        self._undisturbed = [answer.result() for answer in alone]
        self._answers: list[list[Any]] = [[] for _ in range(_NUM_STREAMS)]

    @contextmanager
    def reading(self) -> Iterator[None]:
        """All of them read while the block runs, and finish what they read at its end."""
        clients = [self._fleet.start(self._read, stream) for stream in range(_NUM_STREAMS)]
        try:
            yield
        finally:
            self._ends.set()
            for client in clients:
                client.result()

    def longest_silence(self, length_s: float) -> float:
        """The longest time, in seconds, in which one of them got nothing during the coming ``length_s``."""
        since = time.monotonic()
        time.sleep(length_s)
        until = time.monotonic()
        edges = [[since, *(at for at in times if since < at < until), until] for times in self._message_times]
        return max(after - before for times in edges for before, after in pairwise(times))

    def wrong(self) -> list[Any]:
        """Answers that differ from the undisturbed ones."""
        return [
            answer
            for expected, answers in zip(self._undisturbed, self._answers, strict=True)
            for answer in answers
            if answer != expected
        ]

    def _read(self, stream: int) -> None:
        while not self._ends.is_set():
            self._answers[stream].append(self._answer(stream))

    def _answer(self, stream: int) -> Any:
        sampling = common_pb2.SamplingParams(temperature=1.0, max_tokens=96, ignore_eos=True)
        times = self._message_times[stream]
        answer = self._fleet.generate(
            seed=stream, sampling=sampling, on_message=lambda _: times.append(time.monotonic())
        )
        return answer.ids, answer.finishes


@pytest.fixture(scope="module")
def running(tmp_path_factory) -> Iterator[Fleet]:
    with fleet.running(tmp_path_factory.mktemp("paused")) as started:
        started.deploy(_CONFIG)
        yield started


def _standing_still(*titles: str) -> Callable[[Fleet], Any]:
    @contextmanager
    def fault(running: Fleet) -> Iterator[None]:
        processes = [_process(running, title) for title in titles]
        for process in processes:
            process.send_signal(signal.SIGSTOP)
        try:
            yield
        finally:
            for process in processes:
                process.send_signal(signal.SIGCONT)

    return fault


@contextmanager
def _killed_controller(running: Fleet) -> Iterator[None]:
    _process(running, _CONTROLLER).kill()
    yield


@pytest.mark.parametrize(
    "fault",
    [
        pytest.param(_standing_still(_CONTROLLER, _GCS), id="both stand still"),
        pytest.param(_standing_still(_CONTROLLER), id="controller stands still", marks=pytest.mark.full),
        pytest.param(_standing_still(_GCS), id="GCS stands still", marks=pytest.mark.full),
        pytest.param(_killed_controller, id="controller dies", marks=pytest.mark.full),
    ],
)
def test_answers_go_on_without_the_control_plane(running, fault):
    """No stream waits for it, new requests are answered, all with the same ids; no replica is restarted after."""
    replicas = _replica_pids(running)
    streams, load = Streams(running), SteadyLoad(running, clients=2, lengths=(16,) * 4)

    with load, streams.reading():
        before_s = streams.longest_silence(_AROUND_S)
        with fault(running):
            asked = load.asked
            silent_s = streams.longest_silence(_PAUSE_S)
            answered = load.asked - asked
        after_s = streams.longest_silence(_AROUND_S)

    figures = f"longest silence {before_s:.2f}, {silent_s:.2f}, {after_s:.2f} s; {answered} new requests answered"
    assert (streams.wrong(), load.report.failed, load.report.wrong) == ([], [], [])
    assert answered > 0, figures
    assert max(silent_s, after_s) < before_s + _PAUSE_S / 2, figures
    running.eventually(lambda: _is_healthy(running), "a healthy fleet", within_s=90)
    assert _replica_pids(running) == replicas


def _process(running: Fleet, title: str) -> psutil.Process:
    (process,) = running.eventually(lambda: [child for child in _children(running) if title in _title(child)], title)
    return process


def _replica_pids(running: Fleet) -> set[int]:
    return {child.pid for child in _children(running) if "ServeReplica:" in _title(child)}


def _children(running: Fleet) -> list[psutil.Process]:
    return [child for child in running.head.children(recursive=True) if is_alive(child)]


def _title(process: psutil.Process) -> str:
    return " ".join(process.cmdline()[:1])


def _is_healthy(running: Fleet) -> bool:
    return all(
        application["status"] == "RUNNING"
        and all(deployment["status"] == "HEALTHY" for deployment in application["deployments"].values())
        for application in running.applications().values()
    )
