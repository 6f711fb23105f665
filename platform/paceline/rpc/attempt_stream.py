"""The receiving end of one attempt's token stream."""

from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Sequence
from typing import TypeAlias

from grpc import aio

from paceline.core.generation import GenerationChunk, GenerationRequest
from paceline.errors import PacelineError, TargetLostError, TargetUnavailableError
from paceline.rpc.call_errors import is_broken_connection, our_errors
from paceline.rpc.chunk_continuity import ChunkContinuity
from paceline.rpc.codec_target import decode_chunks
from paceline.rpc.silence import SilenceWatch
from paceline.v1 import target_pb2

Batch: TypeAlias = Sequence[GenerationChunk]
Call: TypeAlias = (
    "aio.UnaryStreamCall[target_pb2.StreamRequest, target_pb2.StreamResponse]"  # generic in the stubs only
)


class AttemptStream(AsyncIterator[Batch]):
    """Batches of chunks that are new and without gaps. The call begins with the first batch that is asked for.

    Closing it ends the call, which aborts the attempt. Beside the target's own errors it raises StreamGapError where
    tokens are missing, TargetLostError where the replica died or fell silent while it had the attempt, and
    TargetUnavailableError where it never got it.
    """

    def __init__(
        self,
        start: Callable[[], Call],
        request: GenerationRequest,
        *,
        connect: Callable[[], Awaitable[bool]],
        silence_s: float | None,
    ) -> None:
        """``connect`` says whether there is a connection, once that is known.

        ``silence_s``: the replica is given up after this long without a message; None: it sends no signs of life.
        """
        self._start = start
        self._request = request
        self._connect = connect
        self._silence_s = silence_s
        self._continuity = ChunkContinuity(request.num_choices, request.resumed)
        self._call: Call | None = None
        self._verdict: PacelineError | None = None
        self._reached_target = False
        self._batches = self._read()

    def __aiter__(self) -> "AttemptStream":
        return self

    async def __anext__(self) -> Batch:
        """The next batch."""
        return await anext(self._batches)

    async def aclose(self) -> None:
        """End the call; idempotent."""
        await self._batches.aclose()

    @property
    def is_ended(self) -> bool:
        """Whether `end` has been called."""
        return self._verdict is not None

    def end(self, error: PacelineError) -> None:
        """End the call; its reader gets ``error`` unless the answer is complete. Returns at once."""
        self._verdict = self._verdict or error
        if self._call is not None:
            self._call.cancel()

    async def _read(self) -> AsyncGenerator[Batch, None]:
        with our_errors():
            # A connection that breaks with the call on it may have been broken by the call.
            self._reached_target = await self._connect()
        if self._verdict is not None:
            raise self._verdict
        watch = None if self._silence_s is None else SilenceWatch(self._silence_s, self._fell_silent)
        try:
            with our_errors():
                self._call = self._start()
                async for message in self._call:
                    self._reached_target = True
                    fresh = self._continuity.admit(decode_chunks(self._request.key, message))
                    if fresh and watch is not None:
                        with watch.away():
                            yield fresh
                    elif fresh:
                        yield fresh
                    elif watch is not None:
                        watch.heard()
            self._continuity.check_complete()
        except TargetUnavailableError as error:
            if not self._continuity.is_complete:
                raise self._judge(error) from error
        finally:
            if watch is not None:
                watch.stop()
            if self._call is not None:
                self._call.cancel()

    def _fell_silent(self) -> None:
        self.end(TargetLostError(f"it sent nothing for {self._silence_s:g} s"))

    def _judge(self, error: TargetUnavailableError) -> PacelineError:
        if self._verdict is not None:
            return self._verdict
        if self._reached_target and is_broken_connection(error):
            return TargetLostError(str(error.args[0]))
        return error
