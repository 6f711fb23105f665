import grpc
import pytest
from grpc import aio

from paceline.drafting.matching import DrafterFacts
from paceline.drafting.ngram import NgramDrafter
from paceline.rpc.auth import call_metadata, new_token
from paceline.rpc.holds import HoldRegistry
from paceline.rpc.link_server import DrafterServicer
from paceline.rpc.options import channel_options
from paceline.rpc.replica_server import ReplicaServicer
from paceline.rpc.target_server import TargetServicer
from paceline.v1 import common_pb2, common_pb2_grpc, drafter_pb2_grpc, target_pb2, target_pb2_grpc
from peers import PEER, TOKEN, StubBackend, serving

BAD_METADATA = {
    "none": (),
    "wrong": call_metadata(new_token()),
    "no scheme": (("authorization", TOKEN),),
    "prefix": (("authorization", f"Bearer {TOKEN[:-1]}"),),
    "twice": call_metadata(TOKEN) + call_metadata(new_token()),
}


async def _call_all(channel, metadata) -> dict[str, grpc.StatusCode]:
    """The code of every kind of call: unary, server stream, bidirectional, and an unknown method."""
    replica = common_pb2_grpc.ReplicaServiceStub(channel)
    target = target_pb2_grpc.TargetServiceStub(channel)
    drafter = drafter_pb2_grpc.DrafterServiceStub(channel)
    calls = {
        "metrics": replica.Metrics(common_pb2.MetricsRequest(), metadata=metadata),
        "abort": target.Abort(target_pb2.AbortRequest(key="r/1"), metadata=metadata),
        "stream": target.Stream(target_pb2.StreamRequest(), metadata=metadata),
        "load": target.WatchLoad(target_pb2.WatchLoadRequest(), metadata=metadata),
        "link": drafter.Link(metadata=metadata),
        "unknown": channel.unary_unary("/x.X/Y")(b"", metadata=metadata),
    }
    codes = {}
    for name, call in calls.items():
        if name == "link":
            await call.done_writing()
        codes[name] = await call.code()
    return codes


@pytest.mark.parametrize("kind", BAD_METADATA)
async def test_every_call_without_the_token_is_refused(kind):
    """No RPC of any kind gets past a missing or wrong token, unknown methods included."""
    backend = StubBackend()
    servicer = DrafterServicer(NgramDrafter(), DrafterFacts("ngram", "ng"))
    services = (TargetServicer(backend, HoldRegistry(1)), ReplicaServicer(lambda: "x 1\n"), servicer)
    async with serving(*services) as server, aio.insecure_channel(server.address, options=channel_options(PEER)) as ch:
        codes = await _call_all(ch, BAD_METADATA[kind])
    servicer.close()
    assert set(codes.values()) == {grpc.StatusCode.UNAUTHENTICATED}
    assert backend.aborted == []


async def test_token_opens_the_replica():
    """With the token the metrics are served as they were rendered."""
    channel_of = aio.insecure_channel
    async with serving(ReplicaServicer(lambda: "x 1\n")) as server, channel_of(server.address) as channel:
        stub = common_pb2_grpc.ReplicaServiceStub(channel)
        response = await stub.Metrics(common_pb2.MetricsRequest(), metadata=call_metadata(TOKEN))
    assert response.text == "x 1\n"


def test_tokens_are_long_and_never_repeat():
    """A token cannot be guessed."""
    tokens = {new_token() for _ in range(100)}
    assert len(tokens) == 100
    assert min(map(len, tokens)) >= 40
