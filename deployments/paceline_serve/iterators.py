"""Ends asynchronous iterators at a known moment, not when the garbage collector finds them."""

from collections.abc import AsyncIterator
from typing import Any


async def close_iterator(iterator: AsyncIterator[Any]) -> None:
    """Close an iterator that is a generator; one that has ended, or was never started, is fine."""
    close = getattr(iterator, "aclose", None)
    if close is not None:
        await close()
