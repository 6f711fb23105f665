import subprocess
import sys
import time

import psutil

from paceline_serve.local_ray import LocalRay, _wait_ended, is_alive


def test_a_zombie_has_ended():
    """A process whose parent never asks how it ended is neither alive, nor listed, nor waited for."""
    code = "import subprocess, sys; p = subprocess.Popen([sys.executable, '-c', '']); print(p.pid, flush=True); input()"
    with subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as parent:
        orphan = psutil.Process(int(parent.stdout.readline()))
        give_up_at = time.monotonic() + 5
        while orphan.status() != psutil.STATUS_ZOMBIE and time.monotonic() < give_up_at:
            time.sleep(0.01)
        listed = [process.pid for process in LocalRay(num_cpus=1).processes()]
        started = time.monotonic()

        assert orphan.is_running()
        assert not is_alive(orphan)
        assert parent.pid in listed
        assert orphan.pid not in listed
        assert _wait_ended([orphan]) == []
        assert time.monotonic() - started < 1
        parent.communicate(b"\n")
