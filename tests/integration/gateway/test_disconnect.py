"""A client that goes away, seen as raw ASGI."""

import asyncio
import json

import pytest

import stub_pool


class _Connection:
    """One HTTP request whose client can hang up."""

    def __init__(self, app, path, body):
        self.app = app
        self.scope = {
            "type": "http", "asgi": {"version": "3.0"}, "http_version": "1.1", "method": "POST", "path": path,
            "raw_path": path.encode(), "query_string": b"", "root_path": "", "scheme": "http", "headers": [],
            "client": ("127.0.0.1", 1), "server": ("127.0.0.1", 80),
        }  # fmt: skip
        self.body = json.dumps(body).encode()
        self.read = False
        self.gone = asyncio.Event()
        self.sent = []

    async def receive(self):
        if not self.read:
            self.read = True
            return {"type": "http.request", "body": self.body, "more_body": False}
        await self.gone.wait()
        return {"type": "http.disconnect"}

    async def send(self, message):
        self.sent.append(message)

    def start(self):
        return asyncio.create_task(self.app(self.scope, self.receive, self.send))


@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/completions"])
@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize("delay_s", [0.02, 30.0], ids=["in mid-answer", "before the first token"])
async def test_hanging_up_ends_the_generation(path, stream, delay_s):
    """Streamed or not, before the first token or after it: the target is free at once and nothing more is sent."""
    pool = stub_pool.StubPool(delay_s=delay_s, block=1)
    prompt = {"messages": [{"role": "user", "content": "x"}]} if "chat" in path else {"prompt": "x", "max_tokens": 99}
    connection = _Connection(stub_pool.make_app(pool), path, prompt | {"stream": stream})
    running = connection.start()
    await pool.busy.wait()
    if delay_s < 1:
        await asyncio.sleep(0.07)

    connection.gone.set()
    await asyncio.wait_for(running, 1)

    assert pool.running == 0
    assert pool.aborted == [pool.requests[0].key]
    assert not any(b"[DONE]" in message.get("body", b"") for message in connection.sent)
    assert stream or not connection.sent


async def test_a_cancelled_handler_ends_the_generation():
    """A server that cancels the request's task instead of sending a disconnect has the same effect."""
    pool = stub_pool.StubPool(delay_s=30)
    running = _Connection(stub_pool.make_app(pool), "/v1/completions", {"prompt": "x"}).start()
    await pool.busy.wait()

    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running

    assert pool.running == 0
    assert len(pool.aborted) == 1


async def test_an_answer_that_ends_is_not_aborted():
    """The watcher leaves normal requests alone."""
    pool = stub_pool.StubPool()
    connection = _Connection(stub_pool.make_app(pool), "/v1/completions", {"prompt": "x", "stream": True})

    await asyncio.wait_for(connection.start(), 1)

    assert pool.aborted == []
    assert connection.sent[-1] == {"type": "http.response.body", "body": b"", "more_body": False}


class _Upload(_Connection):
    """A request whose body does not arrive whole."""

    async def receive(self):
        if not self.read:
            self.read = True
            return {"type": "http.request", "body": self.body[:3], "more_body": True}
        await self.gone.wait()
        return {"type": "http.disconnect"}


async def test_hanging_up_during_the_upload_is_no_failure(caplog):
    """No trace, no error for the log, nothing asked of a target."""
    pool = stub_pool.StubPool()
    connection = _Upload(stub_pool.make_app(pool), "/v1/completions", {"prompt": "x"})
    running = connection.start()

    connection.gone.set()
    await asyncio.wait_for(running, 1)

    assert not pool.requests
    assert not [record for record in caplog.records if record.levelname in {"WARNING", "ERROR"}]
    assert connection.sent[0]["status"] == 499


async def test_an_upload_that_stalls_ends_at_the_requests_time_limit():
    """The limit counts from the first byte, so a slow sender cannot hold a place for ever."""
    connection = _Upload(stub_pool.make_app(stub_pool.StubPool(), request_timeout_s=0.05), "/v1/completions", {})

    await asyncio.wait_for(connection.start(), 1)

    assert connection.sent[0]["status"] == 504
    assert b"deadline_exceeded" in connection.sent[1]["body"]


async def test_the_upload_counts_against_the_answers_time():
    """What is left for the answer is the limit less the time that the body took."""
    pool = stub_pool.StubPool(delay_s=0.2, block=100)  # the whole answer after 0.2 s
    connection = _Connection(stub_pool.make_app(pool, request_timeout_s=0.3), "/v1/completions", {"prompt": "x"})
    receive = connection.receive

    async def slowly():
        if not connection.read:
            await asyncio.sleep(0.2)
        return await receive()

    connection.receive = slowly
    await asyncio.wait_for(connection.start(), 1)

    assert connection.sent[0]["status"] == 504
    assert len(pool.aborted) == 1
