"""Our own clients against the doors."""

import socket
import threading
import time
from contextlib import closing, contextmanager

import pytest
import uvicorn

import grpc_door
import stub_pool
from paceline.client.conversation import AnswerFacts, ChatQuestion, Turn
from paceline.client.grpc_client import GrpcClient
from paceline.client.rest import RestClient
from paceline.errors import AnswerFailedError, EngineFailedError, ServiceUnreachableError

QUESTION = ChatQuestion((Turn("system", "brief"), Turn("user", "hi")), seed=5, temperature=0.0)


@contextmanager
def _rest(pool):
    server = uvicorn.Server(uvicorn.Config(stub_pool.make_app(pool), port=0, log_level="error", lifespan="off"))
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    while not server.started:
        time.sleep(0.01)
    port = server.servers[0].sockets[0].getsockname()[1]
    with closing(RestClient(f"http://127.0.0.1:{port}/v1")) as client:
        yield client
    server.should_exit = True
    thread.join(10)


@contextmanager
def _grpc(pool):
    with grpc_door.serve(stub_pool.make_service(pool)) as address, closing(GrpcClient(address)) as client:
        yield client


DOORS = pytest.mark.parametrize("door", [_rest, _grpc], ids=["rest", "grpc"])


@DOORS
def test_an_answer_over_either_door(door):
    """Same text, same facts, facts last."""
    pool = stub_pool.StubPool()
    with door(pool) as client:
        *pieces, facts = client.ask(QUESTION)

    assert "".join(piece.text for piece in pieces) == stub_pool.ANSWER
    assert isinstance(facts, AnswerFacts)
    assert (facts.route, facts.drafter, facts.seed, facts.finish_reason) == ("speculative", "ngram", 5, "stop")
    assert (facts.completion_tokens, facts.model) == (len(pool.script), "tiny")
    assert facts.tau == pytest.approx(len(pool.script) / -(-len(pool.script) // pool.block))
    assert pool.requests[0].sampling.greedy


@DOORS
def test_rounds_come_when_asked_for(door):
    """All committed tokens are in the rounds."""
    pool = stub_pool.StubPool()
    with door(pool) as client:
        *pieces, _ = client.ask(ChatQuestion(QUESTION.turns, explain=True, speculation="on", drafter="ngram"))

    rounds = [entry for piece in pieces for entry in piece.rounds]
    if door is _grpc:
        assert sum(piece.num_tokens for piece in pieces) == len(pool.script)
    committed = [t.token_id for r in rounds for t in (*r.drafted[: r.accepted], r.target_token)]
    assert committed == list(pool.script)


@DOORS
def test_a_refusal_is_one_sentence(door):
    """The server's reason and words arrive."""
    with door(stub_pool.StubPool()) as client, pytest.raises(AnswerFailedError, match="nowhere") as caught:
        list(client.ask(ChatQuestion(QUESTION.turns, drafter="nowhere")))
    assert caught.value.args[0] == "drafter_group_not_found"


@DOORS
def test_a_break_in_mid_answer_raises(door):
    """What came before the break is given out, then the error."""
    pool = stub_pool.StubPool(fail_after=2, fail_with=EngineFailedError("boom"))
    seen = []
    with door(pool) as client, pytest.raises(AnswerFailedError, match="failed 3 times"):
        seen.extend(client.ask(QUESTION))


@DOORS
def test_closing_the_events_frees_the_target(door):
    """Ctrl-C in the middle of an answer does not leave it running."""
    pool = stub_pool.StubPool(delay_s=0.02, block=1)
    with door(pool) as client:
        events = client.ask(QUESTION)
        next(events)
        events.close()
        end_s = time.monotonic() + 2
        while pool.running and time.monotonic() < end_s:
            time.sleep(0.01)
        assert (pool.running, len(pool.aborted)) == (0, 1)


@pytest.mark.parametrize("kind", ["rest", "grpc"])
def test_nobody_there_is_one_sentence(kind):
    """A refused connection says what to start."""
    with socket.socket() as reserved:
        reserved.bind(("127.0.0.1", 0))
        port = reserved.getsockname()[1]
        client = RestClient(f"http://127.0.0.1:{port}") if kind == "rest" else GrpcClient(f"127.0.0.1:{port}")
        with closing(client), pytest.raises(ServiceUnreachableError, match="paceline serve"):
            list(client.ask(QUESTION))


@DOORS
def test_a_web_proxy_in_the_environment_does_not_matter_here(door, monkeypatch):
    """Both clients reach their own machine, whatever HTTP_PROXY says and though nothing listens there."""
    for name in ("HTTP_PROXY", "http_proxy", "grpc_proxy", "ALL_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    for name in ("NO_PROXY", "no_proxy", "no_grpc_proxy"):
        monkeypatch.delenv(name, raising=False)

    with door(stub_pool.StubPool()) as client:
        *_, facts = client.ask(QUESTION)

    assert facts.seed == 5
