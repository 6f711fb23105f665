"""The gateway replica's own logic, without Ray Serve around it."""

import asyncio
import logging
from types import SimpleNamespace

import grpc
import pytest

from paceline.errors import PacelineError, TargetUnavailableError, UnauthenticatedError
from paceline.rpc.loopback import is_loopback
from paceline.v1 import generation_pb2
from paceline_serve import gateway
from paceline_serve.app import build
from paceline_serve.gateway import GatewayReplica, _host_of_peer
from tiny_tokenizers import text_tokenizer


@pytest.mark.parametrize(
    ("peer", "loopback"),
    [
        ("ipv4:127.0.0.1:4711", True),
        ("ipv6:%5B::1%5D:4711", True),
        ("ipv6:[::1]:4711", True),
        ("ipv6:%5B::ffff:127.0.0.1%5D:4711", True),
        ("ipv4:10.0.0.7:4711", False),
        ("ipv6:%5B::ffff:10.0.0.7%5D:4711", False),
        ("unknown", False),
        ("", False),
    ],
)
def test_only_callers_on_this_machine_are_loopback(peer, loopback):
    """Ray Serve's gRPC door binds every address, so callers are told apart by theirs."""
    assert is_loopback(_host_of_peer(peer)) is loopback


class Call:
    """A call's context, as Ray Serve hands it to the replica."""

    code = details = None

    def __init__(self, peer: str) -> None:
        self._peer = peer

    def peer(self) -> str:
        return self._peer

    def invocation_metadata(self):
        return ()

    def set_code(self, code) -> None:
        self.code = code

    def set_details(self, details) -> None:
        self.details = details


class BrokenService:
    """A service that fails in a way that nobody planned."""

    def __getattr__(self, name: str):
        raise ZeroDivisionError("secret of the inside")


class BareReplica(GatewayReplica):
    """Without the constructor, and without the coroutine that Ray Serve awaits in place of the collector."""

    def __init__(self) -> None:
        pass

    def __del__(self) -> None:
        pass


def _replica(*, loopback_only: bool = True) -> BareReplica:
    replica = BareReplica()
    replica._loopback_only = loopback_only
    replica._service = BrokenService()
    return replica


async def _refusal(replica: BareReplica, call: Call) -> PacelineError:
    with pytest.raises(PacelineError) as refused:
        await anext(replica.Generate(generation_pb2.GenerateRequest(prompt="Hi"), call))
    return refused.value


async def test_a_grpc_caller_from_elsewhere_is_refused():
    """Without API keys only callers on the same machine are answered, whatever address the proxy binds."""
    call = Call("ipv4:10.0.0.7:4711")

    assert isinstance(await _refusal(_replica(), call), UnauthenticatedError)
    assert call.code is grpc.StatusCode.UNAUTHENTICATED


@pytest.mark.parametrize(("peer", "loopback_only"), [("ipv4:127.0.0.1:1", True), ("ipv4:10.0.0.7:1", False)])
async def test_an_unexpected_failure_is_logged_and_says_nothing(peer, loopback_only, caplog):
    """The client gets INTERNAL and one short sentence; the log has the trace."""
    call = Call(peer)
    with caplog.at_level(logging.ERROR, logger="paceline_serve"):
        error = await _refusal(_replica(loopback_only=loopback_only), call)

    assert call.code is grpc.StatusCode.INTERNAL
    assert call.details == "INTERNAL: The gateway failed; its log has the details."
    assert error.__suppress_context__
    assert "secret of the inside" in caplog.text


async def test_warming_up_survives_whatever_fails(monkeypatch):
    """The gateway becomes ready once a token comes, whatever went wrong before."""
    failures = [TargetUnavailableError("no replica"), ZeroDivisionError("unplanned")]
    calls = []

    async def warm_up() -> None:
        calls.append(1)
        if failures:
            raise failures.pop(0)

    monkeypatch.setattr(gateway, "_WARM_UP_RETRY_S", 0.0)
    replica = _replica()
    replica._service = SimpleNamespace(warm_up=warm_up)
    await asyncio.wait_for(replica._warm_up(), 5)

    assert len(calls) == 3


class WarmingReplica(GatewayReplica):
    """Warm as soon as the test says so."""

    warm: asyncio.Event
    warming_began: asyncio.Event

    async def _warm_up(self) -> None:
        self.warming_began.set()
        await self.warm.wait()

    def __del__(self) -> None:
        pass


@pytest.fixture(name="starting")
async def _starting(monkeypatch):
    """A replica that is being constructed, as Ray Serve does it: where it returns, requests come."""
    monkeypatch.setattr(gateway, "start_router", lambda _handle: None)
    monkeypatch.setattr(gateway, "node_address", lambda: "127.0.0.1")
    monkeypatch.setattr(gateway, "_load_tokenizer", lambda _settings: text_tokenizer("byte_level"))
    replica = WarmingReplica.__new__(WarmingReplica)
    replica.warm, replica.warming_began = asyncio.Event(), asyncio.Event()
    yield replica
    await GatewayReplica.__del__(replica)


async def test_a_gateway_is_not_there_before_it_has_seen_a_token(starting):
    """One that joins others would turn its first requests away."""
    constructing = asyncio.create_task(starting.__init__({}, SimpleNamespace(hold=None)))
    await asyncio.wait_for(starting.warming_began.wait(), 20)
    assert not constructing.done()

    starting.warm.set()

    await asyncio.wait_for(constructing, 20)


async def test_a_gateway_without_any_target_is_there_to_say_so(starting, monkeypatch):
    """With nobody at the door clients would only hang."""
    monkeypatch.setattr(gateway, "_FIRST_TOKEN_WITHIN_S", 0.01)

    await asyncio.wait_for(starting.__init__({}, SimpleNamespace(hold=None)), 20)

    assert not starting._warming.done()


async def test_a_gateway_whose_start_failed_can_be_taken_down():
    """Ray Serve calls the clean-up also after a constructor that raised, wherever it got to."""
    closed = []

    async def close() -> None:
        closed.append("pool")

    replica = BareReplica()
    await GatewayReplica.__del__(replica)
    replica._pool = SimpleNamespace(close=close)
    await GatewayReplica.__del__(replica)

    assert closed == ["pool"]


def test_waiting_at_the_proxies_is_bounded():
    """Requests that no gateway has taken yet are refused beyond a limit, with a time to try again."""
    config = build({"config": {}})._bound_deployment._deployment_config

    assert 0 < config.max_queued_requests < 1000
    assert config.backpressure_config.retry_after_s >= 1
