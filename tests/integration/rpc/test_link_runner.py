import asyncio
import contextlib
from collections.abc import AsyncIterator
from dataclasses import dataclass, field

import pytest

from draft_dialogue import opening, row
from drafters import OracleDrafter
from fault_transport import FaultTransport
from paceline.core.hashed_tokens import HashedTokens
from paceline.drafting.matching import DrafterFacts
from paceline.errors import DrafterUnavailableError
from paceline.rpc import link_runner
from paceline.rpc.endpoint import Endpoint
from paceline.rpc.link_runner import LinkRunner
from paceline.rpc.link_server import DrafterServicer
from paceline.rpc.link_sessions import Outgoing
from paceline.v1 import drafter_pb2
from peers import TARGET, until

A, B = Endpoint("a", "a", "t"), Endpoint("b", "b", "t")


@dataclass
class Owner:
    """Writes down what the link says."""

    ups: list[str] = field(default_factory=list)
    downs: list[str] = field(default_factory=list)
    outgoing: list[Outgoing] = field(default_factory=list)
    messages: list[drafter_pb2.LinkResponse] = field(default_factory=list)

    def link_up(self, drafter: DrafterFacts, incarnation: str) -> None:
        self.ups.append(incarnation)

    def link_down(self, why: str) -> None:
        self.downs.append(why)

    def none_left(self, why: str) -> None:
        self.downs.append(why)

    def take(self) -> Outgoing | None:
        return self.outgoing.pop(0) if self.outgoing else None

    def receive(self, message: drafter_pb2.LinkResponse) -> None:
        self.messages.append(message)


@pytest.fixture
async def servicer() -> AsyncIterator[DrafterServicer]:
    made = DrafterServicer(OracleDrafter([]), DrafterFacts("oracle", "g"))
    yield made
    made.close()


@contextlib.asynccontextmanager
async def running(transport, owner: Owner, *, message_bytes: int = 2**20) -> AsyncIterator[LinkRunner]:
    runner = LinkRunner("g", TARGET, owner, transport, message_bytes=message_bytes)
    task = asyncio.create_task(runner.run())
    try:
        yield runner
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def test_link_moves_when_its_replica_leaves_the_list(servicer):
    """A replica that drains is left at once, for one that stays."""
    owner, transport = Owner(), FaultTransport({"a": servicer})
    async with running(transport, owner) as runner:
        runner.set_endpoints([A])
        await until(lambda: len(owner.ups) == 1)
        transport.servicers["b"] = servicer
        runner.set_endpoints([B])
        await until(lambda: len(owner.ups) == 2, 2.0)
        assert owner.downs[-1] == "the replica is leaving"


async def test_silent_replica_is_given_up_after_the_handshake_time(monkeypatch):
    """A process that accepts and says nothing does not hold the link for ever."""
    monkeypatch.setattr(link_runner, "HANDSHAKE_S", 0.05)

    class Silent:
        closed = 0

        async def connect(self, _group, _endpoint):
            return self

        async def write(self, _message):
            return

        async def read(self):
            await asyncio.sleep(60)

        async def close(self):
            self.closed += 1

    owner, transport = Owner(), Silent()
    async with running(transport, owner) as runner:
        runner.set_endpoints([A])
        await until(lambda: bool(owner.downs))
        assert "no welcome" in owner.downs[0]
        assert transport.closed >= 1
        assert owner.ups == []


async def test_a_replica_that_hangs_is_asked_more_and_more_rarely(monkeypatch):
    """The time that a handshake takes in vain is not the life of a link, and forgives nothing."""
    monkeypatch.setattr(link_runner, "HANDSHAKE_S", 0.02)
    monkeypatch.setattr(link_runner, "SETTLED_AFTER_S", 0.02)

    class Hanging:
        async def connect(self, _group, _endpoint):
            return self

        async def write(self, _message):
            return

        async def read(self):
            await asyncio.sleep(60)

        async def close(self):
            return

    owner = Owner()
    async with running(Hanging(), owner) as runner:
        runner.set_endpoints([A])
        await until(lambda: len(owner.downs) >= 3)
        assert runner._chooser._failures["a"].num >= 3


async def test_unexpected_error_does_not_end_the_search(servicer):
    """A bug in the transport is logged and the next try goes on."""

    class Flaky(FaultTransport):
        tries = 0

        async def connect(self, group, endpoint):
            self.tries += 1
            if self.tries == 1:
                raise ValueError("a bug")
            return await super().connect(group, endpoint)

    owner = Owner()
    async with running(Flaky({"a": servicer}), owner) as runner:
        runner.set_endpoints([A])
        await until(lambda: len(owner.ups) == 1, 3.0)
        assert "see the target's log" in owner.downs[0]


async def test_failing_replica_is_not_hammered():
    """Tries at a dead address get rarer."""

    class Dead:
        tries = 0

        async def connect(self, group, _endpoint):
            self.tries += 1
            raise DrafterUnavailableError(group, "connection refused")

    transport = Dead()
    async with running(transport, Owner()) as runner:
        runner.set_endpoints([A])
        await asyncio.sleep(0.6)
        assert 2 <= transport.tries <= 8


async def test_message_of_an_earlier_process_or_link_is_not_heard(servicer):
    """What was said before the present handshake does not count any more."""
    owner, transport = Owner(), FaultTransport({"a": servicer})
    async with running(transport, owner) as runner:
        runner.set_endpoints([A])
        await until(lambda: len(owner.ups) == 1)
        stream = transport._streams["a"][0]
        for incarnation, round_ in (("another", 99), (servicer.incarnation, 0)):
            stream._to_target.put_nowait(drafter_pb2.LinkResponse(incarnation=incarnation, round=round_))
        await asyncio.sleep(0.05)
        assert owner.messages == []
        stream._to_target.put_nowait(drafter_pb2.LinkResponse(incarnation=servicer.incarnation, round=1))
        await until(lambda: len(owner.messages) == 1)


async def test_rows_beyond_one_message_are_split(servicer):
    """A batch over the message limit goes out in several messages, each opening with its own row."""
    owner, transport = Owner(), FaultTransport({"a": servicer})
    async with running(transport, owner, message_bytes=400) as runner:
        tokens = HashedTokens(range(1, 12))
        names = [f"s{index}" for index in range(20)]
        packed = runner._pack(
            Outgoing([opening(n) for n in names], [row(tokens, 0, depth=1, session=n) for n in names], ["x"])
        )
    assert len(packed) > 1
    assert max(message.ByteSize() for message in packed) < 600
    assert [row.session for message in packed for row in message.rows] == names
    for message in packed:
        assert [opened.session for opened in message.opens] == [row.session for row in message.rows]
    assert [list(message.closes) for message in packed] == [["x"]] + [[]] * (len(packed) - 1)


@pytest.mark.parametrize("moment", ["connect", "read", "write", "close"])
async def test_a_cancel_from_within_does_not_end_the_link_for_good(servicer, moment):
    """A channel that cancels its own calls is one more failure; only a cancel of the runner itself ends it."""

    class Cancelling(FaultTransport):
        tries = 0

        async def connect(self, group, endpoint):
            self.tries += 1
            if self.tries > 1:
                return await super().connect(group, endpoint)
            if moment == "connect":
                raise asyncio.CancelledError
            stream = await super().connect(group, endpoint)
            whole = getattr(stream, moment)

            async def cancelled(*arguments):
                if moment == "close":
                    await whole(*arguments)
                raise asyncio.CancelledError

            setattr(stream, moment, cancelled)
            if moment == "close":
                stream.break_off()
            return stream

    owner, transport = Owner(), Cancelling({"a": servicer})
    async with running(transport, owner) as runner:
        runner.set_endpoints([A])
        await until(lambda: transport.tries > 1 and len(owner.ups) >= 1, 3.0)
