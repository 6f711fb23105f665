import asyncio

import pytest

from paceline.errors import DeadlineExceededError
from paceline.gateway.deadline import within


async def test_time_that_has_passed_before_counts():
    """The limit counts from the given start and names the whole span."""
    started_s = asyncio.get_running_loop().time() - 5.0

    with pytest.raises(DeadlineExceededError, match=r"5\.01 s"):
        async with within(5.01, started_s):
            await asyncio.sleep(1)


async def test_a_timeout_of_the_block_is_not_ours():
    """What the block raises by itself keeps its kind."""
    with pytest.raises(TimeoutError, match="its own"):
        async with within(5.0, asyncio.get_running_loop().time()):
            raise TimeoutError("its own")
