import asyncio
import threading
from types import SimpleNamespace

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
