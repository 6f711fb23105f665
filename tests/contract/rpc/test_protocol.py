"""Every pair of versions that may meet during an update works, on the stream and on the link.

What the release that spoke version 1 said is recorded; see `protocol_examples`.
"""

import asyncio
import dataclasses
import json
from pathlib import Path

import pytest

import protocol_examples as examples
from draft_dialogue import opening, replies, row
from paceline.core.drafts import DraftProposal
from paceline.core.generation import ChoiceStart
from paceline.core.hashed_tokens import HashedTokens
from paceline.drafting.matching import DrafterFacts
from paceline.drafting.ngram import NgramDrafter
from paceline.errors import LinkRefusedError, TargetUnavailableError
from paceline.rpc import codec_link, codec_target, handshake
from paceline.rpc.holds import HoldRegistry
from paceline.rpc.protocol import OURS, Versions
from paceline.rpc.target_client import TargetConnection
from paceline.rpc.target_server import TargetServicer
from paceline.v1 import drafter_pb2, target_pb2
from peers import PEER, TOKEN, StubBackend, generation, loop_thread, remote, serving, until

FIRST = Versions(1, 1)
RECORDED = {
    name: bytes.fromhex(said)
    for name, said in json.loads((Path(examples.__file__).parent / "recorded" / "protocol_1.json").read_text()).items()
}
PAIRS = [(ours, theirs) for ours in (1, 2) for theirs in (1, 2)]


def pinned(newest):
    return PEER.model_copy(update={"protocol_max": newest})


@pytest.mark.parametrize("name", RECORDED)
def test_a_release_that_is_pinned_to_version_1_says_what_the_first_one_said(name):
    """Byte by byte: a peer of that release cannot tell the two apart."""
    assert examples.serialized(examples.messages(ours=FIRST))[name] == RECORDED[name].hex()


def test_what_the_first_release_said_is_understood():
    """All of its messages give the records that they were made from; what it did not know yet has its default."""
    stream_request = target_pb2.StreamRequest.FromString
    assert codec_target.decode_generation_request(stream_request(RECORDED["request"])) == examples.REQUEST
    assert codec_target.decode_generation_request(stream_request(RECORDED["plain request"])) == examples.PLAIN_REQUEST
    assert codec_target.agree(stream_request(RECORDED["request"]).protocol) == 1
    chunks = target_pb2.StreamResponse.FromString(RECORDED["chunks"])
    assert codec_target.decode_chunks("r/2", chunks) == examples.CHUNKS
    report = codec_target.decode_report(target_pb2.WatchLoadResponse.FromString(RECORDED["report"]))
    assert report == codec_target.LoadReport(examples.LOAD, 5, "fingerprint")
    assert (report.uptime_s, report.draining, report.stalled_s) == (0.0, False, 0.0)
    assert target_pb2.AbortRequest.FromString(RECORDED["abort"]).key == "r/2"

    hello = drafter_pb2.LinkRequest.FromString(RECORDED["hello"]).hello
    welcome, target = handshake.answer_hello(hello, examples.DRAFTER)
    assert (welcome.protocol, target) == (1, examples.TARGET)
    welcome = drafter_pb2.LinkResponse.FromString(RECORDED["welcome"]).welcome
    assert handshake.check_welcome(welcome, examples.TARGET, group="small") == examples.DRAFTER
    rows = drafter_pb2.LinkRequest.FromString(RECORDED["rows"])
    assert [codec_link.decode_opening(message) for message in rows.opens] == [examples.OPENING]
    assert [codec_link.decode_row(message) for message in rows.rows] == [examples.ROW]
    answers = drafter_pb2.LinkResponse.FromString(RECORDED["replies"]).rows
    assert tuple(codec_link.decode_reply(message) for message in answers) == examples.REPLIES


@pytest.mark.parametrize(("gateway", "target"), PAIRS)
async def test_any_gateway_streams_from_any_target(gateway, target):
    """Whole, resumed and aborted answers, errors and load reports, whichever of the two is newer."""
    backend = StubBackend(per_batch=2)
    servicer = TargetServicer(backend, HoldRegistry(60), versions=Versions(1, target), sign_of_life_s=0.01)
    async with serving(servicer) as server:
        connection = TargetConnection(server.address, TOKEN, peer=pinned(gateway))
        whole = await _ids(connection, generation("a/1", max_tokens=7))
        resumed = dataclasses.replace(generation("b/2", max_tokens=7), resumed=(ChoiceStart(0, (0, 1, 2), 3),))
        rest = await _ids(connection, dataclasses.replace(resumed, deadline_s=60.0))
        reports = connection.watch_load()
        assert (await anext(reports)).system_fingerprint == "fingerprint"
        await reports.aclose()
        backend.before_first = asyncio.Event()  # a long prefill: version 2 says that it is alive
        given_up = asyncio.create_task(_ids(connection, generation("c/1", max_tokens=7)))
        await until(lambda: backend.running == {"c/1"})
        await asyncio.sleep(0.05)
        given_up.cancel()
        await until(lambda: not backend.running)
        await connection.abort("d/1")
        with pytest.raises(TargetUnavailableError):
            await _ids(connection, generation("d/1"))
        await connection.close()
    assert (whole, rest) == (list(range(7)), [3, 4, 5, 6])
    assert backend.aborted[-2:] == ["c/1", "d/1"]


@pytest.mark.parametrize(("target", "drafter"), PAIRS)
def test_any_target_links_to_any_drafter(target, drafter):
    """The handshake settles on the older one's version, and drafts come."""
    facts = DrafterFacts("ngram", "group")
    options = {"versions": Versions(1, drafter)}
    with loop_thread() as thread, remote(thread, NgramDrafter(), facts, peer=pinned(target), serve=options) as link:
        link.open([opening()])
        link.request([row(HashedTokens([1, 2, 3, 4] * 5), 0, depth=2)])
        assert [reply.tree.token_ids for reply in replies(link) if isinstance(reply, DraftProposal)] == [(1, 2)]


async def test_a_gateway_and_a_target_without_a_common_version_say_so():
    """The request may be tried on another replica; the sentence names both ranges."""
    servicer = TargetServicer(StubBackend(), HoldRegistry(60), versions=Versions(3, 4))
    async with serving(servicer) as server:
        connection = TargetConnection(server.address, TOKEN, peer=PEER)
        sentence = f"the gateway speaks protocol {OURS}, the replica 3 to 4"
        with pytest.raises(TargetUnavailableError, match=sentence):
            await _ids(connection, generation())
        with pytest.raises(TargetUnavailableError, match=sentence):
            await anext(connection.watch_load())
        await connection.close()


def test_a_target_and_a_drafter_without_a_common_version_say_so():
    """Both ends refuse by the field's name and both ranges, and requests run plain."""
    hello = handshake.make_hello(examples.TARGET, "small", OURS)
    with pytest.raises(LinkRefusedError, match=f"differ in protocol: target has {OURS}, drafter has 3 to 4"):
        handshake.answer_hello(hello, examples.DRAFTER, Versions(3, 4))
    welcome = drafter_pb2.LinkResponse.FromString(RECORDED["welcome"]).welcome
    with pytest.raises(LinkRefusedError, match="differ in protocol: target has 2 to 3, drafter has 1"):
        handshake.check_welcome(welcome, examples.TARGET, group="small", ours=Versions(2, 3))


async def _ids(connection, request):
    return [token async for batch in connection.stream(request) for chunk in batch for token in chunk.token_ids]
