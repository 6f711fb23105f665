"""A target that stands still: its process is there, its connections too, and nothing comes."""

import os
import signal
import time

import pytest

import fleet as fleets
from paceline.v1 import common_pb2
from paceline_serve.names import TARGET

pytestmark = [pytest.mark.serve, pytest.mark.model, pytest.mark.full, pytest.mark.timeout(900)]

_STREAMS = 4


def test_answers_and_new_requests_go_round_a_target_that_stands_still(tmp_path):
    """Its answers go on at the other one with the undisturbed ids, where requests that come meanwhile are served."""
    config = {
        "model": {"source": "smollm2-135m", "dtype": "float32"},
        "engine": {"kv_cache_tokens": 4096, "threads": 1},
        "target": {"replicas": 2},
        "drafters": {"ngram": {"method": "ngram", "place": "in_process"}},
    }
    sampling = common_pb2.SamplingParams(temperature=0.0, max_tokens=200, ignore_eos=True)
    with fleets.running(tmp_path) as fleet:
        fleet.deploy(config, within_s=480)
        undisturbed = fleet.generate(sampling=sampling).ids
        begun = set()
        streams = [
            fleet.start(
                fleet.generate,
                sampling=sampling,
                on_message=lambda count, number=number: begun.add(number) if count else None,
            )
            for number in range(_STREAMS)
        ]
        fleet.eventually(lambda: len(begun) == _STREAMS, "all streams have begun", within_s=120)
        stopped = fleet.pids(TARGET)[0]
        os.kill(stopped, signal.SIGSTOP)
        try:
            started = time.monotonic()
            answers = [fleet.ask("Say hello.", max_tokens=4) for _ in range(12)]
            asked_s = time.monotonic() - started
            results = [stream.result(timeout=400) for stream in streams]
        finally:
            os.kill(stopped, signal.SIGCONT)

    assert len(answers) == 12
    assert [result.ids for result in results] == [undisturbed] * _STREAMS
    assert sum(result.summary.resumed_count for result in results) >= 1
    # A reservation waits 2 s for the replica, a stream 10 s, and then nobody goes there; the rest is a crowded machine.
    assert asked_s < 120
