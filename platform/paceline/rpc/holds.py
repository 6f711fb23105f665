"""Ties a reserved slot to the life of the token stream that it was reserved for.

A gateway reserves a slot by a `hold` call through Ray Serve and opens the stream over gRPC; the two
arrive in any order. Keys are ``request_id/attempt``, so what comes late for one attempt cannot touch
the next one.
"""

import asyncio
from collections import OrderedDict

from paceline.errors import TargetUnavailableError
from paceline.rpc.drain_flag import DrainFlag

_REMEMBERED = 4096  # ended attempts whose late half is recognised


class HoldRegistry:
    """Attempts on one target replica. Used from one asyncio loop."""

    def __init__(self, open_within_s: float, draining: DrainFlag | None = None) -> None:
        self.open_within_s = open_within_s
        self._draining = DrainFlag() if draining is None else draining
        self._held: dict[str, asyncio.Event] = {}  # set: the stream has opened, or the attempt was aborted
        self._streams: dict[str, asyncio.Event] = {}  # set: the stream has ended
        self._was_held: set[str] = set()  # streams whose hold has come
        self._ended: OrderedDict[str, None] = OrderedDict()

    @property
    def num_held(self) -> int:
        """Attempts that hold a slot or stream without one."""
        return len(self._held.keys() | self._streams.keys())

    @property
    def draining(self) -> bool:
        """Whether new attempts are refused."""
        return self._draining.is_raised

    async def hold(self, key: str) -> bool:
        """Return when the attempt's stream has ended; True if there was one.

        Returns False after ``open_within_s`` without a stream; one that comes later is refused. An attempt that was
        aborted counts as ended. Raises TargetUnavailableError for a new attempt on a replica that drains.
        """
        if key in self._ended:
            return True
        if key not in self._streams:
            self._refuse_new(key)
        opened = self._held.setdefault(key, asyncio.Event())
        self._was_held.add(key)
        try:
            if key not in self._streams:
                await self._until_opened(key, opened)
            stream = self._streams.get(key)
            if stream is not None:
                await stream.wait()
        except TimeoutError:
            return False
        finally:
            self._held.pop(key, None)
            if key not in self._streams:  # ended, or never came and now never may
                self._remember(key)
        return True

    async def _until_opened(self, key: str, opened: asyncio.Event) -> None:
        try:
            await asyncio.wait_for(opened.wait(), self.open_within_s)
        except TimeoutError:
            # The stream may have opened, and even ended, in the same turn of the loop.
            if key not in self._streams and key not in self._ended:
                raise

    def opened(self, key: str) -> None:
        """Note that the attempt's stream has opened.

        Raises TargetUnavailableError if the attempt has ended, was aborted, streams already, or its hold ran out,
        and for a new one on a replica that drains.
        """
        if key in self._ended or key in self._streams:
            raise TargetUnavailableError(f"attempt {key} has already ended or streams elsewhere")
        if key not in self._held:
            self._refuse_new(key)
        self._streams[key] = asyncio.Event()
        if key in self._held:
            self._held[key].set()

    def closed(self, key: str) -> None:
        """Note that the attempt's stream has ended; unknown keys are ignored."""
        ended = self._streams.pop(key, None)
        if ended is not None:
            ended.set()
            self._remember(key)

    def aborted(self, key: str) -> None:
        """Note that an attempt is over: a stream of it that is still on its way is refused. Idempotent."""
        if key in self._streams:
            return  # it is about to end, and tells by `closed`
        self._remember(key)
        if key in self._held:
            self._held[key].set()

    def was_held(self, key: str) -> bool:
        """Whether the hold of a stream that is open has ever come."""
        return key in self._was_held

    def _refuse_new(self, key: str) -> None:
        if self._draining.is_raised:
            raise TargetUnavailableError(f"attempt {key} came to a replica that is draining")

    def _remember(self, key: str) -> None:
        self._was_held.discard(key)
        self._ended[key] = None
        self._ended.move_to_end(key)
        if len(self._ended) > _REMEMBERED:
            self._ended.popitem(last=False)
