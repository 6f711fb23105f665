"""The Ray Serve request that stands for one attempt's token stream, for as long as the stream lasts."""

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Sequence
from typing import Protocol

from paceline.core.generation import GenerationChunk
from paceline.errors import TargetUnavailableError

logger = logging.getLogger(__name__)

_VERDICT_S = 2.0  # for a stream to tell what became of it, when its hold has failed
_SETTLE_S = 10.0  # a hold ends with its stream; beyond this the replica is taken for dead


class HoldResponse(Awaitable[bool], Protocol):
    """What is used of the response of a Ray Serve deployment handle."""

    def cancel(self) -> None:
        """Cancel the request; one that has ended is fine."""


class Abortable(Protocol):
    """What is used of the replica that the attempt runs on."""

    async def abort(self, key: str) -> None:
        """Make sure that an attempt is not running."""


class AttemptHold:
    """Built when the hold has been sent; `settle` must have run before its place goes back."""

    def __init__(self, response: HoldResponse, target: Abortable, key: str) -> None:
        self._response = response
        self._target = target
        self._key = key
        self._result = asyncio.ensure_future(_result_of(response))
        self._streamed = False
        self._completed = False

    async def first_batch(self, batches: AsyncIterator[Sequence[GenerationChunk]]) -> Sequence[GenerationChunk] | None:
        """The first batch of the stream; None if it has ended.

        Raises TargetUnavailableError if the hold fails before: Ray Serve would count nothing for the stream. Where
        the stream fails too its own error is raised: it knows whether the replica died with the attempt in hand.
        """
        reading = asyncio.ensure_future(_next_of(batches))
        try:
            await asyncio.wait({reading, self._result}, return_when=asyncio.FIRST_COMPLETED)
            if not reading.done():
                if self._failure() is not None:
                    await asyncio.wait({reading}, timeout=_VERDICT_S)
                if not reading.done() or reading.exception() is None:
                    self._check()
            batch = await reading
        finally:
            if not reading.done():
                reading.cancel()
                await asyncio.wait({reading})
        self._streamed = batch is not None
        return batch

    def completed(self) -> None:
        """The stream has come to its end, and so has the attempt."""
        self._completed = True

    async def settle(self) -> None:
        """Return when the attempt is over on the replica and the hold with it, or is given up. Never raises."""
        try:
            async with asyncio.timeout(_SETTLE_S):
                if not self._completed:
                    # That the call has ended here is no proof that the replica knows.
                    await self._target.abort(self._key)
                if not self._streamed:
                    # The stream may never have reached the replica, and then the hold would wait for it.
                    self._response.cancel()
                await asyncio.wait({self._result})
        except TimeoutError:
            logger.warning("attempt %s did not end with its stream", self._key)
        except Exception:  # the place must go back, whatever is wrong with the replica
            logger.exception("aborting %s failed", self._key)
        finally:
            if not self._result.done():
                self._response.cancel()
                self._result.cancel()
        if failure := self._failure():
            logger.info("the hold of %s ended: %s", self._key, failure)

    def _check(self) -> None:
        """The hold has ended before the first batch: well, if the stream has been, and its batches are on their way."""
        failure = self._failure()
        if failure is None and not self._result.result():
            failure = "no stream came in time"
        if failure is not None:
            raise TargetUnavailableError(f"the place on the replica was lost: {failure}")

    def _failure(self) -> str | None:
        if not self._result.done() or self._result.cancelled():
            return "cancelled"
        error = self._result.exception()
        return None if error is None else type(error).__name__


async def _result_of(response: HoldResponse) -> bool:
    return await response


async def _next_of(batches: AsyncIterator[Sequence[GenerationChunk]]) -> Sequence[GenerationChunk] | None:
    return await anext(batches, None)
