import io
import os
import signal
import subprocess
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, HTTPServer

import httpx
import psutil
import pytest
from rich.console import Console

from paceline.client.conversation import AnswerFacts
from paceline.config.load import config_from_mapping, load_config
from paceline.config.locate import find_config
from paceline.errors import SetupError
from paceline.telemetry import catalogue
from paceline.telemetry.metrics import Metrics
from paceline_serve import demo
from paceline_serve.demo import DemoAnswer, Verdicts
from paceline_serve.local_platform import LocalPlatform, custom_resources, logical_cpus
from paceline_serve.memory_watch import MemoryWatch
from paceline_serve.metric_values import metric_value
from paceline_serve.ports import free_port
from paceline_serve.serve_flags import ServeFlags, with_flags
from paceline_serve.signals import StopRequestedError, signals_ignored, stop_on_signals


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


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_signals_cannot_cut_the_clean_up_short(number):
    """A signal that comes while everything is being ended anyway changes nothing, and nothing afterwards."""
    before = signal.getsignal(number)
    with stop_on_signals():
        with signals_ignored():
            os.kill(os.getpid(), number)
            time.sleep(0.01)
        with pytest.raises(StopRequestedError):
            signal.raise_signal(number)

    assert signal.getsignal(number) is before


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


def test_a_ray_of_ones_own_has_what_tells_the_nodes_of_a_cluster_apart():
    """A file that pins replicas to nodes of a cluster runs on one machine too."""
    config = config_from_mapping(
        {"target": {"resources": {"big": 1}}, "drafters": {"a": {"method": "ngram", "resources": {"small": 0.5}}}}
    )

    assert custom_resources(config) == {"big", "small"}


def test_a_web_proxy_does_not_stand_before_the_doors_of_this_machine(monkeypatch):
    """Readiness is asked directly, whatever proxy the environment names."""
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:9")
    monkeypatch.delenv("NO_PROXY", raising=False)

    class Healthy(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.end_headers()

    with HTTPServer(("127.0.0.1", 0), Healthy) as server:
        answering = threading.Thread(target=server.handle_request)
        answering.start()
        config = with_flags(load_config(find_config("local-cpu")), ServeFlags(http_port=server.server_port))
        ready = LocalPlatform(config)._ready()
        if not ready:
            httpx.get(f"http://127.0.0.1:{server.server_port}/", trust_env=False)
        answering.join()

    assert ready


def test_a_ray_that_does_not_start_is_told_in_one_sentence(monkeypatch):
    """Ray says so with a stack trace, such as on a machine that is too busy; nothing of it is left running."""
    stopped = []

    def start() -> None:
        raise RuntimeError("Traceback (most recent call last):\n  somewhere\nRuntimeError: the node timed out")

    ports = ServeFlags(http_port=free_port("127.0.0.1"), grpc_port=free_port("127.0.0.1"))
    platform = LocalPlatform(with_flags(load_config(find_config("local-cpu")), ports))
    monkeypatch.setattr(platform.ray, "start", start)
    monkeypatch.setattr(platform.ray, "stop", lambda: stopped.append(True))

    with pytest.raises(SetupError, match=r"^Ray did not start: RuntimeError: the node timed out$"):
        platform.__enter__()
    assert stopped


def test_the_demo_fails_if_one_claim_does():
    """One NO among the claims is remembered, in words, and shown."""
    console = Console(file=io.StringIO())
    verdicts = Verdicts(console)
    verdicts.check("the sky is up", holds=True, found="above")
    verdicts.check("the sea is up", holds=False, found="below")

    assert verdicts.failed == ["the sea is up"]
    assert "the sea is up: NO (below)" in console.file.getvalue()


@pytest.mark.parametrize("broken", [False, True])
def test_the_demos_exit_code_is_the_verdict(broken, monkeypatch):
    """`paceline demo` ends with 0 only if every claim held."""

    def run(platform, verdicts, *, max_tokens):
        verdicts.check("a claim", holds=not broken, found="it")
        return []

    monkeypatch.setattr(demo, "_run", run)
    monkeypatch.setattr(demo, "fetch_models", lambda *_: None)

    assert demo.run_demo(max_tokens=16) == int(broken)


def test_the_demo_shows_a_models_text_as_it_is(monkeypatch, capsys):
    """Brackets and colons that a model writes are neither styles nor pictures, and break nothing."""
    text = "a[0] [red]b[/red] [/never-opened] :smile:"
    facts = AnswerFacts("m", "stop", 1, 2, 1, 0, "plain", text, None, 0, None, None, 0, 0, "strict", "f")

    def run(platform, verdicts, *, max_tokens):
        demo._show(platform, verdicts, max_tokens=max_tokens)
        verdicts.check(text, holds=False, found=text)
        return []

    monkeypatch.setattr(demo, "_run", run)
    monkeypatch.setattr(demo, "fetch_models", lambda *_: None)
    monkeypatch.setattr(demo, "_check_processes", lambda *_: None)
    monkeypatch.setattr(demo, "_counted", lambda *_: 1.0)
    monkeypatch.setattr(demo, "_ask", lambda *_: DemoAnswer(text, facts, 1.0))
    monkeypatch.setattr(LocalPlatform, "url", "http://nowhere")
    demo.run_demo(max_tokens=16)

    shown = capsys.readouterr().out
    assert f"Answer: {text}\n" in shown
    assert f"route plain: {text}\n" in shown
    assert f"{text}: NO ({text})" in shown


def test_the_demos_memory_includes_the_fetch(monkeypatch, capsys):
    """A conversion that takes too much is found, though it is over before anything runs."""
    code = "x = bytearray(120 * 2**20); x[::4096] = b'1' * len(x[::4096]); import time; time.sleep(1)"
    monkeypatch.setattr(demo, "fetch_models", lambda *_: subprocess.run([sys.executable, "-c", code], check=True))
    monkeypatch.setattr(demo, "_run", lambda *_, **__: [])
    monkeypatch.setattr(demo, "_MOST_BYTES", psutil.Process().memory_info().rss + 60 * 2**20)

    assert demo.run_demo(max_tokens=16) == 1
    assert "peak resident memory at most 4 GB: NO" in capsys.readouterr().out


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
