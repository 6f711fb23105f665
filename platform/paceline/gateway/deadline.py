"""A request's own time limit."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from paceline.errors import DeadlineExceededError


@asynccontextmanager
async def within(deadline_s: float, started_s: float) -> AsyncIterator[None]:
    """Run the block until ``deadline_s`` after ``started_s``, a time of the loop's clock.

    Raises DeadlineExceededError; a TimeoutError of the block's own passes through.
    """
    try:
        async with asyncio.timeout_at(started_s + deadline_s) as limit:
            yield
    except TimeoutError:
        if limit.expired():
            raise DeadlineExceededError(deadline_s) from None
        raise
