"""Watches one attempt's stream from inside the target: says that it is alive, and ends it when it should not be."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable

from grpc import aio

from paceline.errors import DeadlineExceededError, PacelineError, TargetUnavailableError
from paceline.v1 import target_pb2

SIGN_OF_LIFE_S = 0.8  # a little under the second that the protocol promises

Check = Callable[[], None]  # raises what is to end the stream
Write = Callable[[target_pb2.StreamResponse], Awaitable[None]]


class AttemptWatch:
    """The writing end of one stream, on the asyncio loop that serves it.

    A stream that its other end does not read is checked too, though nothing can be written to it.
    """

    def __init__(self, write: Write, *, signs: bool, every_s: float = SIGN_OF_LIFE_S) -> None:
        """``signs``: whether the other end knows signs of life; the stream is checked ``every_s`` in any case."""
        self._write = write
        self._signs = signs
        self._every_s = every_s
        self._writing = asyncio.Lock()  # gRPC takes one message at a time
        self._loop = asyncio.get_running_loop()
        self._opened_at = self._wrote_at = self._loop.time()
        self._fault: PacelineError | None = None
        self._sign: asyncio.Task[None] | None = None  # the newest one; checks do not wait for it to get out
        self.num_messages = 0  # with tokens

    @contextlib.asynccontextmanager
    async def running(self, check: Check, deadline_s: float | None) -> AsyncIterator[None]:
        """Watch while the block runs.

        The block is ended by what ``check`` raises, which is then raised from it, and after ``deadline_s`` by
        DeadlineExceededError.
        """
        try:
            async with asyncio.timeout(deadline_s) as limit:
                ticking = asyncio.create_task(self._tick(check, limit))
                try:
                    yield
                finally:
                    ticking.cancel()
                    if self._sign is not None:
                        self._sign.cancel()
        except TimeoutError:
            if self._fault is not None:
                raise self._fault from None
            if deadline_s is not None and limit.expired():
                raise DeadlineExceededError(deadline_s) from None
            raise

    @property
    def age_s(self) -> float:
        """Time since the stream opened."""
        return self._loop.time() - self._opened_at

    async def write(self, message: target_pb2.StreamResponse) -> None:
        """Send a message with tokens; waits while the other end does not read."""
        self.num_messages += 1
        await self._send(message)

    async def _send(self, message: target_pb2.StreamResponse) -> None:
        async with self._writing:
            await self._write(message)
        self._wrote_at = self._loop.time()

    async def _tick(self, check: Check, limit: asyncio.Timeout) -> None:
        try:
            while True:
                await asyncio.sleep(self._wait_s())
                check()
                is_silent = self._loop.time() - self._wrote_at >= self._every_s
                if self._signs and is_silent and not self._writing.locked():
                    self._sign = asyncio.create_task(self._give_sign(limit))
        except PacelineError as fault:
            self._end(fault, limit)

    def _wait_s(self) -> float:
        silent_s = self._loop.time() - self._wrote_at
        return max(self._every_s - silent_s, self._every_s / 2)

    async def _give_sign(self, limit: asyncio.Timeout) -> None:
        try:
            await self._send(target_pb2.StreamResponse())
        except aio.BaseError as error:  # the call is over, though its handler may not know yet
            self._end(TargetUnavailableError(f"its gateway cannot be reached: {type(error).__name__}"), limit)

    def _end(self, fault: PacelineError, limit: asyncio.Timeout) -> None:
        self._fault = fault
        if not limit.expired():
            limit.reschedule(self._loop.time())
