"""A candidate in a process of its own."""

import os

import pytest
import torch

from paceline.bench.worker import Worker
from paceline.errors import EngineFailedError


class _Echo:
    def facts(self):
        return os.getpid(), torch.get_num_threads()

    def fail(self):
        raise ValueError("no luck")

    def vanish(self):
        os._exit(3)


def test_calls_run_over_there_with_threads_of_their_own():
    """Results come back, failures come back as errors without ending it, and a process that dies is noticed."""
    with Worker(_Echo) as worker:
        pid, threads = worker.call("facts", threads=2)
        with pytest.raises(EngineFailedError, match="no luck"):
            worker.call("fail", threads=1)
        assert worker.call("facts", threads=1) == (pid, 1)
        assert threads == 2
        assert pid != os.getpid()
        with pytest.raises(EngineFailedError, match="ended with code"):
            worker.call("vanish", threads=1)
