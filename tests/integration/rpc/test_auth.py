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
from paceline.rpc.replica_status import GatewayStatus, ReplicaStatus
from paceline.rpc.target_server import TargetServicer
from paceline.v1 import drafter_pb2_grpc, replica_pb2, replica_pb2_grpc, target_pb2, target_pb2_grpc
from peers import PEER, TOKEN, StubBackend, serving

STATUS = ReplicaStatus(GatewayStatus(0, 0))
BAD_METADATA = {
    "none": (),
    "wrong": call_metadata(new_token()),
    "no scheme": (("authorization", TOKEN),),
    "prefix": (("authorization", f"Bearer {TOKEN[:-1]}"),),
    "twice": call_metadata(TOKEN) + call_metadata(new_token()),
}


async def _call_all(channel, metadata) -> dict[str, grpc.StatusCode]:
    """The code of every kind of call: unary, server stream, bidirectional, and an unknown method."""
    replica = replica_pb2_grpc.ReplicaServiceStub(channel)
    target = target_pb2_grpc.TargetServiceStub(channel)
    drafter = drafter_pb2_grpc.DrafterServiceStub(channel)
    calls = {
        "metrics": replica.Metrics(replica_pb2.MetricsRequest(), metadata=metadata),
        "status": replica.Status(replica_pb2.StatusRequest(), metadata=metadata),
        "drain": replica.Drain(replica_pb2.DrainRequest(), metadata=metadata),
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
    services = (TargetServicer(backend, HoldRegistry(1)), ReplicaServicer(lambda: "x 1\n", lambda: STATUS), servicer)
    async with serving(*services) as server, aio.insecure_channel(server.address, options=channel_options(PEER)) as ch:
        codes = await _call_all(ch, BAD_METADATA[kind])
    servicer.close()
    assert set(codes.values()) == {grpc.StatusCode.UNAUTHENTICATED}
    assert backend.aborted == []


async def test_token_opens_the_replica():
    """With the token the metrics are served as they were rendered."""
    replica = ReplicaServicer(lambda: "x 1\n", lambda: STATUS)
    async with serving(replica) as server, aio.insecure_channel(server.address) as channel:
        stub = replica_pb2_grpc.ReplicaServiceStub(channel)
        response = await stub.Metrics(replica_pb2.MetricsRequest(), metadata=call_metadata(TOKEN))
    assert response.text == "x 1\n"


def test_tokens_are_long_and_never_repeat():
    """A token cannot be guessed."""
    tokens = {new_token() for _ in range(100)}
    assert len(tokens) == 100
    assert min(map(len, tokens)) >= 40
