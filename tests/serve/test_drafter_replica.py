import asyncio
import threading
from types import SimpleNamespace

import pytest
import torch

from paceline.config.schema import DrafterConfig, ModelConfig
from paceline.telemetry.metrics import Metrics
from paceline_serve import drafter
from paceline_serve.drafter import DrafterReplica


async def test_the_loop_runs_while_the_drafters_thread_ends():
    """Whatever the thread still does at the end, the replica's loop goes on meanwhile."""
    ticked = threading.Event()
    seen = []

    async def stop(grace_s):
        asyncio.get_running_loop().call_later(0.01, ticked.set)

    replica = SimpleNamespace(
        _server=SimpleNamespace(stop=stop), _servicer=SimpleNamespace(close=lambda: seen.append(ticked.wait(2)))
    )
    await DrafterReplica.__del__(replica)

    assert seen == [True]


@pytest.mark.parametrize("method", ["draft_model", "eagle", "mtp", "medusa"])
def test_a_replica_computes_with_its_threads_and_knows_its_target(method, tmp_path, monkeypatch):
    """Every method that computes is held to the group's threads; a head finds the target's files."""
    (tmp_path / "config.json").write_text("{}")
    before = torch.get_num_threads()
    monkeypatch.setattr(drafter, "build_drafter", lambda *parts: (torch.get_num_threads(), parts[2]))
    config = DrafterConfig(method=method, model=str(tmp_path), threads=before + 1)
    try:
        threads, host = drafter._build(
            "group", config, ModelConfig(source=str(tmp_path), dtype="bfloat16"), device="cpu", metrics=Metrics()
        )
    finally:
        torch.set_num_threads(before)

    assert threads == before + 1
    assert (host.target_folder, host.target_dtype, host.local) == (tmp_path.resolve(), "bfloat16", None)
