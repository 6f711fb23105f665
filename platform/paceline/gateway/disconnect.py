"""Stops work whose client has gone."""

import asyncio
from collections.abc import Coroutine
from typing import Any

from starlette.types import Receive


async def run_until_disconnect(work: Coroutine[Any, Any, None], receive: Receive) -> bool:
    """Run ``work``; cancel it once the client has disconnected. Returns whether it ran to its end.

    The request body must have been read. ``work`` runs in a task of its own from start to end, so its
    clean-up has run when this returns, or raises because it was itself cancelled.
    """
    task = asyncio.create_task(work)
    watcher = asyncio.create_task(_disconnected(receive))
    try:
        await asyncio.wait({task, watcher}, return_when=asyncio.FIRST_COMPLETED)
        finished = task.done()
    finally:
        await _cancel(watcher)
        await _cancel(task)
    if finished:
        task.result()
    return finished


async def _disconnected(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


async def _cancel(task: asyncio.Task[None]) -> None:
    """Cancel a task and wait for its clean-up; its own outcome stays in the task."""
    task.cancel()
    await asyncio.wait({task})
