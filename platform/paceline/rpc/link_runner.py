"""Keeps one link of a target to one replica of a drafter group; lives on the asyncio loop."""

import asyncio
import logging
import random
import time
from collections.abc import Callable, Coroutine, Sequence
from typing import Any, Protocol

from paceline.drafting.matching import DrafterFacts, TargetFacts
from paceline.errors import DrafterUnavailableError, LinkRefusedError
from paceline.rpc.codec_link import encode_opening, encode_row
from paceline.rpc.endpoint import Endpoint
from paceline.rpc.endpoint_chooser import EndpointChooser
from paceline.rpc.handshake import check_welcome, make_hello
from paceline.rpc.link_sessions import Outgoing
from paceline.rpc.link_transport import LinkStream, LinkTransport
from paceline.rpc.protocol import OURS, Versions
from paceline.rpc.row_parts import split
from paceline.rpc.status import cancelled_from_within
from paceline.v1 import drafter_pb2

logger = logging.getLogger(__name__)

HANDSHAKE_S = 5.0
SETTLED_AFTER_S = 5.0  # a link that lived this long makes up for earlier failures


class LinkOwner(Protocol):
    """What the link serves. Called on the asyncio loop; must not block."""

    def link_up(self, drafter: DrafterFacts, incarnation: str) -> None:
        """A link is up; the drafter behind it knows no session."""

    def link_down(self, why: str) -> None:
        """The link that was up, or was tried, has ended."""

    def none_left(self, why: str) -> None:
        """There is no replica to try until the list changes."""

    def take(self) -> Outgoing | None:
        """What is to be sent now."""

    def receive(self, message: drafter_pb2.LinkResponse) -> None:
        """A message of the drafter behind the link that is up."""


class LinkRunner:
    """Connects, shakes hands, sends and receives; on any failure starts again somewhere else."""

    def __init__(
        self,
        group: str,
        target: TargetFacts,
        owner: LinkOwner,
        transport: LinkTransport,
        *,
        message_bytes: int,
        versions: Versions = OURS,
        clock: Callable[[], float] = time.monotonic,
        rng: random.Random | None = None,
    ) -> None:
        self._group = group
        self._target = target
        self._owner = owner
        self._transport = transport
        self._message_bytes = message_bytes
        self._versions = versions
        self._clock = clock
        self._chooser = EndpointChooser(clock, rng or random.Random())
        self._to_send = asyncio.Event()
        self._endpoints_changed = asyncio.Event()
        self._round = 0
        self._incarnation = ""
        self._up_since: float | None = None  # clock time; None while no link is up

    def wake(self) -> None:
        """There is something to send."""
        self._to_send.set()

    def set_endpoints(self, endpoints: Sequence[Endpoint]) -> None:
        """Replace the list of replicas; a link to one that is gone is closed."""
        self._chooser.update(endpoints)
        self._endpoints_changed.set()

    async def run(self) -> None:
        """Run until cancelled."""
        while True:
            self._endpoints_changed.clear()
            endpoint = self._chooser.choose()
            if endpoint is None:
                await self._rest()
                continue
            why = await self._try(endpoint)
            logger.info("drafter group %s: link to %s ended: %s", self._group, endpoint.address, why)
            self._owner.link_down(why)

    async def _rest(self) -> None:
        wait_s = self._chooser.wait_s()
        if wait_s is None:
            self._owner.none_left(self._chooser.why_none)
        try:
            await asyncio.wait_for(self._endpoints_changed.wait(), wait_s)
        except TimeoutError:
            return

    async def _try(self, endpoint: Endpoint) -> str:
        """Serve over one replica; returns why that ended."""
        self._up_since = None
        try:
            await self._serve(endpoint)
            why = "the replica is leaving" if endpoint not in self._chooser else "the replica ended the link"
        except LinkRefusedError as error:
            self._chooser.refused(endpoint, str(error))
            return str(error)
        except DrafterUnavailableError as error:
            why = str(error)
        except asyncio.CancelledError:
            if not cancelled_from_within():
                raise
            why = "the stream was ended from within"
        except Exception:  # the border of the task: a link must never end for good
            logger.exception("drafter group %s: link to %s failed", self._group, endpoint.address)
            why = "the link failed; see the target's log"
        # Not from the start of the try: a replica that never says welcome must not pass for a link that lived.
        if self._up_since is not None and self._clock() - self._up_since > SETTLED_AFTER_S:
            self._chooser.succeeded(endpoint)
        self._chooser.failed(endpoint)
        return why

    async def _serve(self, endpoint: Endpoint) -> None:
        stream = await self._transport.connect(self._group, endpoint)
        try:
            try:
                facts, first_round = await asyncio.wait_for(self._shake_hands(stream), HANDSHAKE_S)
            except TimeoutError:
                raise DrafterUnavailableError(self._group, f"no welcome within {HANDSHAKE_S:g} s") from None
            self._up_since = self._clock()
            self._owner.link_up(facts, self._incarnation)
            logger.info("drafter group %s: linked to %s", self._group, endpoint.address)
            await _first_of(self._send(stream), self._receive(stream, first_round), self._until_removed(endpoint))
        finally:
            await stream.close()

    async def _shake_hands(self, stream: LinkStream) -> tuple[DrafterFacts, int]:
        self._round += 1
        hello = make_hello(self._target, self._group, self._versions)
        await stream.write(drafter_pb2.LinkRequest(hello=hello, round=self._round))
        message = await stream.read()
        if message is None or not message.HasField("welcome"):
            raise DrafterUnavailableError(self._group, "the replica did not say welcome")
        self._incarnation = message.incarnation
        facts = check_welcome(message.welcome, self._target, group=self._group, ours=self._versions)
        return facts, self._round

    async def _send(self, stream: LinkStream) -> None:
        self._to_send.set()
        while True:
            await self._to_send.wait()
            self._to_send.clear()
            outgoing = self._owner.take()
            if outgoing is not None:
                for message in self._pack(outgoing):
                    await stream.write(message)

    def _pack(self, outgoing: Outgoing) -> list[drafter_pb2.LinkRequest]:
        """All of it in one message, or in as few as the message limit allows; a row with many features in parts."""
        self._round += 1
        openings = {opening.session: encode_opening(opening) for opening in outgoing.openings}
        messages = [self._message()]
        messages[0].closes.extend(outgoing.closes)
        num_bytes = 0
        parts = (part for row in outgoing.rows for part in split(row, self._message_bytes))
        for row in map(encode_row, parts):
            opening = openings.pop(row.session, None)  # with the first part
            row_bytes = row.ByteSize() + (0 if opening is None else opening.ByteSize())
            if num_bytes and num_bytes + row_bytes > self._message_bytes:
                messages.append(self._message())
                num_bytes = 0
            if opening is not None:
                messages[-1].opens.append(opening)
            messages[-1].rows.append(row)
            num_bytes += row_bytes
        return messages

    def _message(self) -> drafter_pb2.LinkRequest:
        return drafter_pb2.LinkRequest(incarnation=self._incarnation, round=self._round)

    async def _receive(self, stream: LinkStream, first_round: int) -> None:
        while True:
            message = await stream.read()
            if message is None:
                return
            # Anything else was meant for an earlier link: what it says of sessions no longer holds.
            if message.incarnation == self._incarnation and message.round >= first_round:
                self._owner.receive(message)

    async def _until_removed(self, endpoint: Endpoint) -> None:
        while endpoint in self._chooser:
            self._endpoints_changed.clear()
            await self._endpoints_changed.wait()


async def _first_of(*jobs: Coroutine[Any, Any, None]) -> None:
    """Run jobs until the first one ends, with its result; the others are cancelled."""
    tasks = [asyncio.create_task(job) for job in jobs]
    try:
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
    for task in done:
        task.result()
