"""A drafter replica's side of the link."""

import asyncio
import contextlib
import itertools
import logging
import time
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator
from typing import Any

from grpc.aio import Server, ServicerContext

from paceline.core.drafts import DraftProposal, DraftRefusal, DraftReply, DraftRequest, NeedSync
from paceline.core.load import DrafterLoad
from paceline.drafting.drafter import Drafter
from paceline.drafting.matching import DrafterFacts, TargetFacts
from paceline.errors import DrafterUnavailableError, InvalidRequestError
from paceline.rpc.answer_outbox import AnswerOutbox
from paceline.rpc.codec_link import decode_opening, decode_row, encode_drafter_load, encode_reply
from paceline.rpc.draft_checks import row_fault
from paceline.rpc.drafter_loop import DrafterLoop, LinkWork
from paceline.rpc.drain_flag import DrainFlag
from paceline.rpc.handshake import answer_hello
from paceline.rpc.protocol import OURS, Versions
from paceline.telemetry import catalogue
from paceline.telemetry.metrics import Metrics
from paceline.v1 import drafter_pb2, drafter_pb2_grpc

logger = logging.getLogger(__name__)

HEARTBEAT_S = 1.0
MAX_SESSIONS = 4096
MAX_QUEUED_ROWS = 8192
_OVERLOADED_RETRY_MS = 100
_DRAINED = "the replica has drained"

Write = Callable[[drafter_pb2.LinkResponse], Awaitable[None]]


class _Link:
    """One target's stream: where the drafter's thread leaves its answers."""

    def __init__(self, link_id: int, target: TargetFacts, count_drop: Callable[[str], None]) -> None:
        self.link_id = link_id
        self.target = target
        self.round = 0
        self.outbox = AnswerOutbox(MAX_SESSIONS)
        self._loop = asyncio.get_running_loop()
        self._count_drop = count_drop

    def deliver(self, replies: list[DraftReply]) -> None:
        """Take answers from the drafter's thread."""
        with contextlib.suppress(RuntimeError):  # the loop is closed: the replica is going down
            self._loop.call_soon_threadsafe(self.put, replies)

    def put(self, replies: Iterable[DraftReply]) -> None:
        """Take answers on the link's own loop."""
        for reply in replies:
            dropped = self.outbox.put(reply)
            if dropped is not None:
                self._count_drop(dropped)


class DrafterServicer(drafter_pb2_grpc.DrafterServiceServicer):
    """Serves one drafter to any number of targets. Soft state only; `close` ends its thread."""

    def __init__(
        self,
        drafter: Drafter,
        facts: DrafterFacts,
        *,
        ttl_s: float = 60.0,
        metrics: Metrics | None = None,
        max_message_bytes: int = 8 * 2**20,
        versions: Versions = OURS,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.incarnation = uuid.uuid4().hex
        self._facts = facts
        self._versions = versions
        self._metrics = metrics or Metrics()
        # Half of the limit leaves room for the one row that goes over it.
        self._message_bytes = max_message_bytes // 2
        self._clock = clock
        self._link_ids = itertools.count(1)
        self._links: dict[int, _Link] = {}
        self._draining = DrainFlag()
        self._drafting = DrafterLoop(
            drafter,
            group=facts.group,
            metrics=self._metrics,
            ttl_s=ttl_s,
            max_sessions=MAX_SESSIONS,
            max_queued_rows=MAX_QUEUED_ROWS,
            clock=clock,
        )

    def add_to(self, server: Server) -> None:
        """Register the service."""
        drafter_pb2_grpc.add_DrafterServiceServicer_to_server(self, server)  # type: ignore[no-untyped-call]

    @property
    def facts(self) -> DrafterFacts:
        """What the drafter is."""
        return self._facts

    @property
    def load(self) -> DrafterLoad:
        """Load at this moment."""
        return self._drafting.load()

    @property
    def num_links(self) -> int:
        """Targets that are linked."""
        return len(self._links)

    @property
    def draining(self) -> bool:
        """Whether links are refused."""
        return self._draining.is_raised

    def drain(self) -> None:
        """Refuse links from now on and end those that are up: their targets go on with another replica."""
        self._draining.start()
        for link in self._links.values():
            link.outbox.wake()

    def check_health(self) -> None:
        """Raise DrafterUnavailableError if the drafter's thread has died, or once it has drained."""
        if self.draining and not self._links:
            raise DrafterUnavailableError(self._facts.group, _DRAINED)
        if not self._drafting.alive:
            raise DrafterUnavailableError(self._facts.group, "its drafting thread has ended")

    def close(self) -> None:
        """End the drafter's thread; open links go silent."""
        self._drafting.stop()

    async def Link(  # noqa: N802  # name from the proto
        self,
        request_iterator: AsyncIterator[drafter_pb2.LinkRequest],
        context: ServicerContext[Any, Any],
    ) -> None:
        """Serve one target until either end goes."""
        await self.serve(request_iterator, context.write)

    async def serve(self, requests: AsyncIterator[drafter_pb2.LinkRequest], write: Write) -> None:
        """Serve one target over any transport. Raises LinkRefusedError if the two do not match."""
        hello = await anext(requests, None)
        if hello is None:
            return
        if self.draining:
            raise DrafterUnavailableError(self._facts.group, "the replica is draining")
        if not hello.HasField("hello"):
            raise InvalidRequestError("The first message of a link must say hello.", "hello")
        welcome, target = answer_hello(hello.hello, self._facts, self._versions)
        link = _Link(next(self._link_ids), target, self._count_drop)
        link.round = hello.round
        await write(self._response(link, welcome=welcome))
        self._note_link(link, up=True)
        reader = asyncio.create_task(self._read(link, requests))
        reader.add_done_callback(lambda _: link.outbox.wake())
        try:
            await self._write(link, write, reader)
        finally:
            reader.cancel()
            self._drafting.end_link(link.link_id)
            self._note_link(link, up=False)

    async def _read(self, link: _Link, requests: AsyncIterator[drafter_pb2.LinkRequest]) -> None:
        async for message in requests:
            self._accept(link, message)

    async def _write(self, link: _Link, write: Write, reader: "asyncio.Task[None]") -> None:
        while not (reader.done() or self.draining):
            await link.outbox.wait(HEARTBEAT_S)
            for message in self._pack(link, link.outbox.take()):
                await write(message)
        if reader.done():
            reader.result()  # raises what the reader raised

    def _accept(self, link: _Link, message: drafter_pb2.LinkRequest) -> None:
        link.round = max(link.round, message.round)
        if message.incarnation and message.incarnation != self.incarnation:
            # Meant for the process that had this address before.
            link.put(NeedSync(row.session, 0) for row in message.rows)
            return
        rows, refusals = [], []
        for row in map(decode_row, message.rows):
            fault = self._fault_of(link, row)
            if fault is None:
                rows.append(row)
            else:
                refusals.append(DraftRefusal(row.session, fault))
        work = LinkWork(
            port=link,
            openings=tuple(filter(None, map(decode_opening, message.opens))),
            rows=tuple(rows),
            closes=tuple(message.closes),
            received_at=self._clock(),
        )
        if not self._drafting.submit(work):
            refusals.extend(DraftRefusal(row.session, "OVERLOADED", _OVERLOADED_RETRY_MS) for row in rows)
        link.put(refusals)

    def _fault_of(self, link: _Link, row: DraftRequest) -> str | None:
        own_limit = self._facts.context_length
        return row_fault(
            row,
            vocabulary_size=link.target.vocabulary.size,
            context_length=link.target.context_length if own_limit is None else own_limit,
            feature=self._facts.feature,
        )

    def _pack(self, link: _Link, replies: list[DraftReply]) -> Iterator[drafter_pb2.LinkResponse]:
        """Messages with all replies, each below the message limit; one empty message if there are none."""
        response = self._response(link)
        num_bytes = 0
        for reply in replies:
            self._count_reply(reply)
            answer = encode_reply(reply)
            if num_bytes and num_bytes + answer.ByteSize() > self._message_bytes:
                yield response
                response, num_bytes = self._response(link), 0
            response.rows.append(answer)
            num_bytes += answer.ByteSize()
        yield response

    def _response(self, link: _Link, welcome: drafter_pb2.LinkWelcome | None = None) -> drafter_pb2.LinkResponse:
        return drafter_pb2.LinkResponse(
            welcome=welcome, incarnation=self.incarnation, round=link.round, load=encode_drafter_load(self.load)
        )

    def _count_reply(self, reply: DraftReply) -> None:
        group = self._facts.group
        if isinstance(reply, DraftProposal):
            self._metrics.count(catalogue.DRAFTER_TOKENS, len(reply.tree), group=group)
            kind = "proposal"
        elif isinstance(reply, NeedSync):
            kind = "need_sync"
        else:
            self._metrics.count(catalogue.DRAFTER_REFUSALS, 1, group=group, reason=reply.reason)
            kind = "refused"
        self._metrics.count(catalogue.DRAFTER_REPLIES, 1, group=group, kind=kind)

    def _count_drop(self, reason: str) -> None:
        self._metrics.count(catalogue.DRAFTER_DROPS, 1, group=self._facts.group, reason=reason)

    def _note_link(self, link: _Link, *, up: bool) -> None:
        if up:
            self._links[link.link_id] = link
        else:
            self._links.pop(link.link_id, None)
        self._metrics.set(catalogue.DRAFTER_LINKS, len(self._links), group=self._facts.group)
        logger.info("link %s of drafter group %s is %s", link.link_id, self._facts.group, "up" if up else "down")
