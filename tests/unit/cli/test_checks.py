import socket

import pytest

from paceline.cli import checks
from paceline.cli.checks import Status
from paceline.kernels.compiled import load_kernel
from paceline.rpc.free_port import port_is_free

_GIB = 2**30


@pytest.mark.parametrize(
    ("running", "status"), [((3, 10, 9), Status.FAIL), ((3, 11, 0), Status.OK), ((3, 14, 1), Status.OK)]
)
def test_python_must_be_new_enough(running, status):
    """Python below 3.11 fails with advice."""
    check = checks.check_python(running)

    assert check.status is status
    assert bool(check.advice) == (status is Status.FAIL)


@pytest.mark.parametrize(("gib", "status"), [(1, Status.FAIL), (3, Status.WARN), (8, Status.OK)])
def test_memory_is_compared_with_what_the_local_config_needs(gib, status):
    """Under 2 GiB fails, under 4 GiB warns."""
    assert checks.check_memory(gib * _GIB).status is status


def test_the_control_group_limits_the_memory(tmp_path):
    """In a container the limit counts, less what is used; "max" means no limit."""
    (tmp_path / "memory.max").write_text("1048576\n")
    (tmp_path / "memory.current").write_text("48576\n")
    assert checks.available_memory(tmp_path) == 1_000_000

    (tmp_path / "memory.max").write_text("max\n")
    assert checks.available_memory(tmp_path) > 1_000_000


def test_a_busy_port_is_named_with_its_flag(monkeypatch):
    """A port that a server listens on is busy, and the advice names the flag that changes it."""
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        server.listen()
        port = server.getsockname()[1]
        assert not port_is_free(port)
        monkeypatch.setattr(checks, "GatewayConfig", lambda: type("G", (), {"http_port": port, "grpc_port": 0}))

        check = checks.check_ports()

    assert check.status is Status.WARN
    assert str(port) in check.found
    assert "--http-port" in check.advice


@pytest.mark.parametrize(("installed", "status"), [("2.60.3", Status.OK), ("2.6.0", Status.WARN)])
def test_ray_must_be_of_the_right_series(monkeypatch, installed, status):
    """Another series of Ray gets a warning."""
    monkeypatch.setattr(checks, "version", lambda name: installed)

    assert checks.check_ray().status is status


def test_a_cache_that_cannot_be_written_to_fails(tmp_path, monkeypatch):
    """The nearest existing folder decides whether the cache can be made."""
    assert checks.check_cache(tmp_path / "a" / "b").status is not Status.FAIL

    monkeypatch.setattr(checks.os, "access", lambda path, mode: False)
    assert checks.check_cache(tmp_path / "a").status is Status.FAIL


def test_a_machine_without_a_compiler_is_told_what_it_would_gain(monkeypatch, tmp_path):
    """A warning, as everything runs without one too."""
    monkeypatch.setenv("PACELINE_CACHE", str(tmp_path))
    monkeypatch.setenv("PATH", str(tmp_path))
    load_kernel.cache_clear()
    try:
        check = checks.check_compiler()
    finally:
        load_kernel.cache_clear()

    assert check.status is Status.WARN
    assert "gcc" in check.advice


def test_missing_shared_memory_is_fine(tmp_path):
    """Systems without /dev/shm pass."""
    assert checks.check_shared_memory(tmp_path / "absent").status is Status.OK


def test_each_check_that_is_not_ok_says_what_to_do():
    """On whatever machine this runs: advice if and only if something is wrong."""
    for check in checks.run_checks():
        assert bool(check.advice) == (check.status is not Status.OK), check
