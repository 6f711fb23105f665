"""Both doors in front of a queue that is full: what clients hear, and what they leave behind."""

import asyncio
from contextlib import asynccontextmanager

import grpc
import httpx
import pytest

import stub_pool
from paceline.errors import OverloadedError
from paceline.gateway.grpc_service import generate
from paceline.gateway.http_app import build_app
from paceline.gateway.place_queue import PlaceQueue
from paceline.gateway.target_pool import PlaceWish
from paceline.rpc.status import status_of
from paceline.v1 import generation_pb2

CHAT = {"messages": [{"role": "user", "content": "hi"}]}


class QueuedPool(stub_pool.StubPool):
    """One target with ``num_places``; requests wait for them as they do in a gateway."""

    def with_places(self, num_places: int, *, max_taken: int) -> "QueuedPool":
        self.places = asyncio.Semaphore(num_places)
        self.queue = PlaceQueue(self._reserve, max_taken=max_taken, max_wait_s=30.0)
        return self

    @asynccontextmanager
    async def place(self, wish: PlaceWish):
        async with self.queue.take(wish), super().place(wish) as place:
            yield place

    @asynccontextmanager
    async def _reserve(self, wish, withdrawn):
        async with self.places:
            yield "stub"


@asynccontextmanager
async def _client(service):
    transport = httpx.ASGITransport(app=build_app(lambda: service), raise_app_exceptions=False)
    async with httpx.AsyncClient(transport=transport, base_url="http://test") as client:
        yield client


@pytest.mark.parametrize("stream", [False, True])
async def test_of_four_rest_calls_two_are_refused_with_a_time_to_come_back(stream):
    """One place and room for one more: two answers, two 503 in OpenAI's shape with Retry-After; no 500, none hangs."""
    pool = QueuedPool(delay_s=0.005).with_places(1, max_taken=2)
    async with _client(stub_pool.make_service(pool)) as client:
        calls = (client.post("/v1/chat/completions", json=CHAT | {"stream": stream}) for _ in range(4))
        responses = await asyncio.wait_for(asyncio.gather(*calls), 30)

    assert sorted(response.status_code for response in responses) == [200, 200, 503, 503]
    for response in responses:
        if response.status_code == 503:
            error = response.json()["error"]
            assert (error["type"], error["code"], error["param"]) == ("server_error", "overloaded", None)
            assert 1 <= int(response.headers["retry-after"]) <= 60
    await _idle(pool)


async def test_of_four_grpc_calls_two_are_refused_with_a_time_to_come_back():
    """The same over gRPC: RESOURCE_EXHAUSTED, and the details say when."""
    pool = QueuedPool(delay_s=0.005).with_places(1, max_taken=2)
    service = stub_pool.make_service(pool)

    async def call() -> None:
        async for message in generate(generation_pb2.GenerateRequest(prompt="hi"), service):
            assert not message.HasField("error")

    results = await asyncio.wait_for(asyncio.gather(*(call() for _ in range(4)), return_exceptions=True), 30)

    refusals = [result for result in results if result is not None]
    assert len(refusals) == 2
    for refusal in refusals:
        assert isinstance(refusal, OverloadedError)
        code, details = status_of(refusal)
        assert code is grpc.StatusCode.RESOURCE_EXHAUSTED
        assert details.startswith("OVERLOADED: ")
        assert "Try again in" in details
    await _idle(pool)


async def test_a_deadline_that_passes_in_the_queue_is_an_error_of_its_own():
    """The request leaves the queue, and the place that comes later is not taken for it."""
    pool = QueuedPool().with_places(0, max_taken=10)
    service = stub_pool.make_service(pool, request_timeout_s=0.05)
    async with _client(service) as client:
        response = await client.post("/v1/chat/completions", json=CHAT)

    assert response.status_code == 504
    assert pool.queue.num_waiting == 0
    pool.places.release()
    await _idle(pool)


async def test_clients_that_give_up_leave_the_queue_at_once():
    """Six calls wait, and go: nobody waits any more."""
    pool = QueuedPool().with_places(0, max_taken=10)
    async with _client(stub_pool.make_service(pool)) as client:
        calls = [asyncio.create_task(client.post("/v1/chat/completions", json=CHAT)) for _ in range(6)]
        while pool.queue.num_waiting < 6:  # noqa: ASYNC110  # the queue tells nobody
            await asyncio.sleep(0.001)
        for call in calls:
            call.cancel()
        await asyncio.gather(*calls, return_exceptions=True)

    assert pool.queue.num_waiting == 0
    assert pool.wishes == []
    pool.places.release()
    await _idle(pool)


async def _idle(pool: QueuedPool) -> None:
    async with asyncio.timeout(10):
        while pool.queue.num_held or pool.queue.num_waiting or pool.places.locked():  # noqa: ASYNC110  # as above
            await asyncio.sleep(0.001)
