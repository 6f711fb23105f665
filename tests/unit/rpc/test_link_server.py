import asyncio
from collections.abc import AsyncIterator

import pytest

from draft_dialogue import opening, row
from drafters import OracleDrafter
from paceline.core.drafts import DraftProposal, DraftRefusal, NeedSync
from paceline.core.hashed_tokens import HashedTokens
from paceline.drafting.matching import DrafterFacts
from paceline.errors import InvalidRequestError, LinkRefusedError
from paceline.rpc.codec_link import decode_reply, encode_opening, encode_row
from paceline.rpc.handshake import make_hello
from paceline.rpc.link_server import DrafterServicer
from paceline.v1 import drafter_pb2
from peers import TARGET, until

TEXT = tuple(range(1, 12))


class Client:
    """A hand-driven target: writes to a queue, may refuse to read."""

    def __init__(self, servicer: DrafterServicer) -> None:
        self.sent: asyncio.Queue[drafter_pb2.LinkRequest | None] = asyncio.Queue()
        self.received: list[drafter_pb2.LinkResponse] = []
        self.may_read = asyncio.Event()
        self.may_read.set()
        self.serving = asyncio.create_task(servicer.serve(self._requests(), self._write))

    async def _requests(self) -> AsyncIterator[drafter_pb2.LinkRequest]:
        while (message := await self.sent.get()) is not None:
            yield message

    async def _write(self, message: drafter_pb2.LinkResponse) -> None:
        await self.may_read.wait()
        self.received.append(message)

    def answers(self) -> list:
        return [decode_reply(answer) for message in self.received for answer in message.rows]

    def hello(self, group: str = "g") -> None:
        self.sent.put_nowait(drafter_pb2.LinkRequest(hello=make_hello(TARGET, group), round=1))

    def ask(self, *sessions: str, length: int = 4, base: int = 0, depth: int = 3, round_: int = 2, opens=True, **more):
        rows = [encode_row(row(HashedTokens(TEXT[:length]), base, depth=depth, session=name)) for name in sessions]
        openings = [encode_opening(opening(name)) for name in sessions] if opens else []
        self.sent.put_nowait(drafter_pb2.LinkRequest(opens=openings, rows=rows, round=round_, **more))


@pytest.fixture
async def servicer() -> AsyncIterator[DrafterServicer]:
    made = DrafterServicer(OracleDrafter([TEXT]), DrafterFacts("oracle", "g"), max_message_bytes=64 * 1024)
    yield made
    made.close()


async def test_stream_without_a_hello_is_refused(servicer):
    """The first message must be the handshake."""
    client = Client(servicer)
    client.ask("s")
    with pytest.raises(InvalidRequestError):
        await client.serving


async def test_mismatch_ends_the_stream_before_anything_is_drafted(servicer):
    """A target of another group gets no welcome."""
    client = Client(servicer)
    client.hello(group="other")
    with pytest.raises(LinkRefusedError):
        await client.serving
    assert client.received == []


async def test_every_response_names_incarnation_round_and_load(servicer):
    """A target can tell whom it hears, how current that is and how busy the drafter is."""
    client = Client(servicer)
    client.hello()
    client.ask("s", round_=7)
    await until(lambda: len(client.answers()) == 1)
    last = client.received[-1]
    assert {message.incarnation for message in client.received} == {servicer.incarnation}
    assert (last.round, last.load.session_count) == (7, 1)
    client.serving.cancel()


async def test_idle_link_has_a_heartbeat_with_the_load(servicer):
    """Without rows the load still arrives, about once a second."""
    client = Client(servicer)
    client.hello()
    await until(lambda: len(client.received) >= 2, 3)
    assert not client.received[-1].rows
    client.serving.cancel()


async def test_target_that_does_not_read_delays_nobody(servicer):
    """A blocked stream keeps only the newest answer of each session; other links go on at full speed."""
    blocked, free = Client(servicer), Client(servicer)
    blocked.hello()
    free.hello()
    await until(lambda: len(blocked.received) == len(free.received) == 1)
    blocked.may_read.clear()
    blocked.ask("s")
    for length in range(5, 9):
        await asyncio.sleep(0.02)
        blocked.ask("s", length=length, base=length - 1, opens=False)
    free.ask("s")
    await until(lambda: len(free.answers()) == 1, 1.0)
    await until(lambda: servicer.load.pending == 0)

    blocked.may_read.set()
    await until(lambda: any(a.base_length == 8 for a in blocked.answers()))
    assert len(blocked.answers()) < 5
    for client in (blocked, free):
        client.serving.cancel()


async def test_message_for_an_earlier_process_asks_for_everything(servicer):
    """Rows meant for the drafter that had this address before are answered by NEED_SYNC, not drafted."""
    client = Client(servicer)
    client.hello()
    client.ask("s", incarnation="another")
    await until(lambda: len(client.answers()) == 1)
    assert client.answers() == [NeedSync("s", 0)]
    assert servicer.load.sessions == 0
    client.serving.cancel()


async def test_bad_rows_are_refused_by_name_and_the_rest_is_drafted():
    """A context beyond the drafter's limit and ids outside the vocabulary cost only their own row."""
    short = DrafterServicer(
        OracleDrafter([TEXT]), DrafterFacts("oracle", "g", TARGET.vocabulary, TARGET.context_length)
    )
    client = Client(short)
    client.hello()
    too_long = HashedTokens([1] * (TARGET.context_length + 1))
    bad_id = HashedTokens([TARGET.vocabulary.size])
    client.sent.put_nowait(
        drafter_pb2.LinkRequest(
            rows=[
                encode_row(row(too_long, 0, depth=1, session="long")),
                encode_row(row(bad_id, 0, depth=1, session="bad")),
            ]
        )
    )
    client.ask("good")
    await until(lambda: len(client.answers()) == 3)
    by_session = {answer.session: answer for answer in client.answers()}
    assert by_session["long"] == DraftRefusal("long", "CONTEXT_LENGTH")
    assert by_session["bad"] == DraftRefusal("bad", "INVALID_ROW")
    assert isinstance(by_session["good"], DraftProposal)
    client.serving.cancel()
    short.close()


async def test_many_answers_are_split_below_the_message_limit(servicer):
    """However many rows get ready together, no message exceeds the limit."""
    client = Client(servicer)
    client.hello()
    await until(lambda: len(client.received) == 1)
    client.may_read.clear()
    names = [f"{index:04d}" + "n" * 400 for index in range(400)]
    client.ask(*names)
    await asyncio.sleep(0.3)
    client.may_read.set()
    await until(lambda: len(client.answers()) == 400)
    assert max(message.ByteSize() for message in client.received) <= 64 * 1024
    client.serving.cancel()


async def test_end_of_the_stream_frees_its_sessions_at_once(servicer):
    """Half-close and cancel both end the link, without waiting for a lease."""
    for end in ("half-close", "cancel"):
        client = Client(servicer)
        client.hello()
        client.ask("s", "t")
        await until(lambda client=client: len(client.answers()) == 2)
        assert servicer.load.sessions == 2
        client.sent.put_nowait(None) if end == "half-close" else client.serving.cancel()
        await asyncio.gather(client.serving, return_exceptions=True)
        await until(lambda: servicer.load.sessions == 0, 1.0)


async def test_health_tells_a_dead_thread(servicer):
    """A replica whose drafting thread has ended is not healthy."""
    servicer.check_health()
    servicer.close()
    with pytest.raises(Exception, match="thread has ended"):
        servicer.check_health()
