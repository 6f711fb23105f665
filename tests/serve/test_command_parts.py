import os
import signal
import subprocess
import sys
import time

import psutil
import pytest

from paceline.config.load import load_config
from paceline.config.locate import find_config
from paceline.telemetry import catalogue
from paceline.telemetry.metrics import Metrics
from paceline_serve.local_platform import LocalPlatform, logical_cpus
from paceline_serve.memory_watch import MemoryWatch
from paceline_serve.metric_values import metric_value
from paceline_serve.signals import StopRequestedError, stop_on_signals


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_the_block(number):
    """Ctrl-C and SIGTERM both reach the clean-up, and a second one does not interrupt it."""
    cleaned_up = []

    def run() -> None:
        try:
            os.kill(os.getpid(), number)
            time.sleep(5)
        finally:
            os.kill(os.getpid(), number)
            cleaned_up.append(True)

    with pytest.raises(StopRequestedError), stop_on_signals():
        run()

    assert cleaned_up == [True]


def test_handlers_are_restored():
    """After the block signals mean what they meant before."""
    before = signal.getsignal(signal.SIGINT)

    with stop_on_signals():
        assert signal.getsignal(signal.SIGINT) is not before

    assert signal.getsignal(signal.SIGINT) is before


def test_the_memory_watch_sees_a_peak():
    """The peak is the largest sum over the processes, also after they have shrunk or ended."""
    code = "x = bytearray(80 * 2**20); x[::4096] = b'1' * len(x[::4096]); import time; time.sleep(1)"
    child = subprocess.Popen([sys.executable, "-c", code])
    process = psutil.Process(child.pid)

    with MemoryWatch(lambda: [process]) as watch:
        child.wait()

    assert 80 * 2**20 < watch.peak_bytes < 160 * 2**20


def test_the_memory_watch_survives_processes_that_vanish():
    """Looking for processes that end just then costs a sample, never the watch."""
    failures = [psutil.NoSuchProcess(1), psutil.AccessDenied(1)]

    def processes():
        if failures:
            raise failures.pop()
        return [psutil.Process()]

    with MemoryWatch(processes) as watch:
        give_up_at = time.monotonic() + 5
        while not watch.peak_bytes and time.monotonic() < give_up_at:
            time.sleep(0.05)

    assert watch.peak_bytes > 0


def test_values_are_read_from_metrics_text():
    """All series of a metric are added up; a metric that was never counted is 0."""
    metrics = Metrics()
    metrics.count(catalogue.DRAFTER_TOKENS, 3, group="a")
    metrics.count(catalogue.DRAFTER_TOKENS, 4, group="b")

    assert metric_value(metrics.render(), catalogue.DRAFTER_TOKENS) == 7
    assert metric_value(metrics.render(), catalogue.ACCEPTED_TOKENS) == 0


def test_ray_believes_in_enough_cpus_for_all_replicas():
    """Replicas take fractions of logical CPUs; their sum must fit, however few cores there are."""
    config = load_config(find_config("disaggregated"))

    assert logical_cpus(config) >= 2 * 0.1 + 3 * 0.1 + 2 * 0.1 + 1


@pytest.mark.parametrize(
    ("host", "url"),
    [
        ("127.0.0.1", "http://127.0.0.1:8000"),
        ("0.0.0.0", "http://127.0.0.1:8000"),  # noqa: S104
        ("::", "http://[::1]:8000"),
    ],
)
def test_addresses_can_be_dialled(host, url):
    """What is printed is an address that a client on this machine can use."""
    config = load_config(find_config("local-cpu"))
    platform = LocalPlatform(config.model_copy(update={"gateway": config.gateway.model_copy(update={"host": host})}))

    assert platform.url == url
