"""A target whose every place is taken: what it still reports, and what clients that give up leave behind."""

import asyncio
import contextlib
import itertools
import time

import grpc
import pytest
from ray import serve

from paceline.gateway.place_queue import PlaceQueue
from paceline.gateway.target_pool import PlaceWish
from paceline.rpc.auth import call_metadata
from paceline.rpc.codec_versions import encode_versions
from paceline.rpc.protocol import OURS
from paceline.telemetry import catalogue
from paceline.v1 import common_pb2, generation_pb2, generation_pb2_grpc, target_pb2, target_pb2_grpc
from paceline_serve.metric_values import metric_value
from paceline_serve.names import APP_NAME, GATEWAY, TARGET
from paceline_serve.router_start import start_router

pytestmark = [pytest.mark.serve, pytest.mark.model, pytest.mark.timeout(900)]

NUM_CLIENTS = 6
METADATA = (("application", APP_NAME),)


@contextlib.asynccontextmanager
async def all_places_taken(platform):
    """As many endless answers as the target holds; gives a stub of the public API."""
    sampling = common_pb2.SamplingParams(temperature=0.0, max_tokens=900, ignore_eos=True)
    request = generation_pb2.GenerateRequest(prompt="One, two, three,", sampling=sampling)
    number = platform.local.config.target.max_held

    async def run(stub) -> None:
        with contextlib.suppress(grpc.aio.AioRpcError):
            async for _ in stub.Generate(request, metadata=METADATA):
                pass

    async with grpc.aio.insecure_channel(platform.grpc_address) as channel:
        stub = generation_pb2_grpc.GenerationServiceStub(channel)
        streams = [asyncio.create_task(run(stub)) for _ in range(number)]
        try:
            await eventually(lambda: platform.target_slots() == number, "a target with every place taken")
            yield stub
        finally:
            for stream in streams:
                stream.cancel()
            await asyncio.gather(*streams, return_exceptions=True)


async def eventually(probe, what: str, *, within_s: float = 120.0) -> None:
    give_up_at = time.monotonic() + within_s
    while not await asyncio.to_thread(probe):
        assert time.monotonic() < give_up_at, f"not within {within_s} s: {what}"
        await asyncio.sleep(0.1)


def queued(platform) -> float:
    return metric_value(platform.metrics(GATEWAY), catalogue.QUEUED_REQUESTS)


async def give_up_in_the_queue(platform, stub) -> None:
    """Clients of the public API that wait for a place, and go."""
    request = generation_pb2.GenerateRequest(prompt="Hello")
    calls = [stub.Generate(request, metadata=METADATA) for _ in range(NUM_CLIENTS)]
    waiting = [asyncio.ensure_future(call.read()) for call in calls]
    await eventually(lambda: queued(platform) == NUM_CLIENTS, "clients in the gateway's queue")
    for call in calls:
        call.cancel()
    await asyncio.gather(*waiting, return_exceptions=True)
    await eventually(lambda: queued(platform) == 0, "an empty queue", within_s=20)


async def give_up_at_a_handle() -> None:
    """The same through a queue and a handle in this process, where Ray Serve's own count can be read."""
    handle = serve.get_deployment_handle(TARGET, APP_NAME).options(stream=False)
    start_router(handle)
    queue = PlaceQueue(
        lambda _wish, withdrawn: handle.hold.choose_replica(withdrawn=withdrawn), max_taken=100, max_wait_s=60
    )
    counts = handle._router._asyncio_router._metrics_manager
    clients = [asyncio.create_task(queue.take(PlaceWish()).__aenter__()) for _ in range(NUM_CLIENTS)]
    await eventually(lambda: counts.num_queued_requests > 0, "requests that Ray Serve counts as queued")
    for client in clients:
        client.cancel()
    await asyncio.gather(*clients, return_exceptions=True)
    assert (queue.num_waiting, queue.num_held) == (0, 0)
    await eventually(lambda: counts.num_queued_requests == 0, "nothing queued at Ray Serve", within_s=20)


def longest_silence(platform, *, within_s: float) -> float:
    """Longest time between two load reports of the target."""
    endpoint = platform.endpoint(TARGET)
    with grpc.insecure_channel(endpoint.address) as channel:
        stub = target_pb2_grpc.TargetServiceStub(channel)
        request = target_pb2.WatchLoadRequest(protocol=encode_versions(OURS))
        reports = stub.WatchLoad(request, metadata=call_metadata(endpoint.token), timeout=60)
        times = [time.monotonic()]
        for _ in reports:
            times.append(time.monotonic())
            if times[-1] - times[0] > within_s:
                break
        reports.cancel()
    return max(later - before for before, later in itertools.pairwise(times))


def test_a_full_target_reports_and_clients_that_give_up_leave_no_phantom_load(platform):
    """While every place is taken load reports stay fresh; six clients that wait and go leave nothing in the gateway's
    queue nor in Ray Serve's, and afterwards the places are free."""

    async def run() -> None:
        async with all_places_taken(platform) as stub:
            assert await asyncio.to_thread(longest_silence, platform, within_s=6.0) < 2
            await give_up_in_the_queue(platform, stub)
            await give_up_at_a_handle()
            assert platform.target_slots() == platform.local.config.target.max_held

    asyncio.run(run())

    platform.eventually(lambda: platform.target_slots() == 0, "a target without holds", within_s=60)
    platform.eventually(
        lambda: metric_value(platform.metrics(GATEWAY), catalogue.OPEN_STREAMS) == 0, "an idle gateway", within_s=60
    )
