"""Two hundred requests of all kinds at once: cancelled and malformed ones change nothing for the others."""

import asyncio
import random
from typing import NamedTuple

import grpc
import pytest

from paceline.telemetry import catalogue
from paceline.v1 import common_pb2, generation_pb2, generation_pb2_grpc
from paceline_serve.metric_values import metric_value
from paceline_serve.names import GATEWAY, TARGET, drafter_deployment

pytestmark = [pytest.mark.serve, pytest.mark.model, pytest.mark.timeout(600)]

NUM_REQUESTS = 200
AT_A_TIME = 16
MAX_TOKENS = 12
METADATA = (("application", "paceline"),)
PROMPTS = (
    "Count to ten.",
    "Copy this: red, green, blue, red, green, blue, red, green, blue.",
    "Write a haiku about rain.",
    "What is 12 times 12?",
    "Name five rivers, one per line.",
    "Say hello in three languages.",
)
ON, OFF, AUTO = (
    generation_pb2.SPECULATION_MODE_ON,
    generation_pb2.SPECULATION_MODE_OFF,
    generation_pb2.SPECULATION_MODE_AUTO,
)
VARIANTS = [
    (prompt, temperature, mode)
    for prompt in PROMPTS
    for temperature, mode in ((0.0, ON), (1.0, AUTO), (1.0, OFF), (0.7, ON))
]


class Job(NamedTuple):
    kind: str  # "whole", "cancelled" or "malformed"
    variant: int


def generate_request(variant: int, *, max_tokens: int = MAX_TOKENS) -> generation_pb2.GenerateRequest:
    prompt, temperature, mode = VARIANTS[variant]
    message = generation_pb2.Message(role="user", content=prompt)
    return generation_pb2.GenerateRequest(
        conversation=generation_pb2.Conversation(messages=[message]),
        sampling=common_pb2.SamplingParams(temperature=temperature, max_tokens=max_tokens, top_p=0.95),
        seed=variant,
        speculation=generation_pb2.Speculation(mode=mode),
    )


def malformed(variant: int) -> generation_pb2.GenerateRequest:
    """A request with one fault, another for each variant."""
    request = generate_request(variant)
    match variant % 4:
        case 0:
            request.sampling.temperature = 9.0
        case 1:
            request.model = "no-such-model"
        case 2:
            request.conversation.messages[0].role = "nobody"
        case 3:
            request.sampling.max_tokens = 10**6
    return request


async def ids_of(stub, request) -> tuple[int, ...]:
    """Token ids of a whole answer."""
    ids: list[int] = []
    async for response in stub.Generate(request, metadata=METADATA):
        assert not response.error.reason, response.error
        ids += [token_id for chunk in response.chunks for token_id in chunk.token_ids]
    return tuple(ids)


async def cancel_in_mid_stream(stub, variant: int) -> None:
    call = stub.Generate(generate_request(variant, max_tokens=500), metadata=METADATA)
    async for _ in call:
        call.cancel()
        return


async def refused(stub, variant: int) -> grpc.StatusCode:
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await ids_of(stub, malformed(variant))
    return caught.value.code()


def make_jobs() -> list[Job]:
    """One in five cancelled, one in ten malformed, in random order."""
    kinds = ["cancelled"] * (NUM_REQUESTS // 5) + ["malformed"] * (NUM_REQUESTS // 10)
    kinds += ["whole"] * (NUM_REQUESTS - len(kinds))
    jobs = [Job(kind, number % len(VARIANTS)) for number, kind in enumerate(kinds)]
    random.Random(7).shuffle(jobs)
    return jobs


async def run_load(address: str) -> tuple[dict[int, tuple[int, ...]], list[tuple[Job, object]]]:
    """Answers of each variant by itself, then the outcome of every job of the mixed load."""
    async with grpc.aio.insecure_channel(address) as channel:
        stub = generation_pb2_grpc.GenerationServiceStub(channel)
        alone = {variant: await ids_of(stub, generate_request(variant)) for variant in range(len(VARIANTS))}
        gate = asyncio.Semaphore(AT_A_TIME)

        async def run(job: Job) -> tuple[Job, object]:
            async with gate:
                if job.kind == "cancelled":
                    return job, await cancel_in_mid_stream(stub, job.variant)
                if job.kind == "malformed":
                    return job, await refused(stub, job.variant)
                return job, await ids_of(stub, generate_request(job.variant))

        return alone, await asyncio.gather(*(run(job) for job in make_jobs()))


def test_mixed_load_changes_no_answer_and_leaves_nothing_behind(platform):
    """Whole answers have the ids of the same request alone; no page, place, session or Serve request is left."""
    alone, outcomes = asyncio.run(run_load(platform.grpc_address))
    whole = [(job, ids) for job, ids in outcomes if job.kind == "whole"]
    codes = {code for job, code in outcomes if job.kind == "malformed"}

    assert len(whole) == 140
    assert [job for job, ids in whole if ids != alone[job.variant]] == []
    assert codes == {grpc.StatusCode.INVALID_ARGUMENT, grpc.StatusCode.NOT_FOUND}

    def nothing_is_held():
        report = platform.target_report()
        load = report.load
        sessions = metric_value(platform.metrics(drafter_deployment("ngram")), catalogue.DRAFTER_SESSIONS)
        held = load.running or load.waiting or report.num_held or sessions or platform.target_slots()
        return not held and load.free_pages == load.total_pages

    platform.eventually(nothing_is_held, "an idle target and drafter")
    assert metric_value(platform.metrics(TARGET), catalogue.ACCEPTED_TOKENS) > 0
    gateway = platform.metrics(GATEWAY)
    assert metric_value(gateway, catalogue.QUEUED_REQUESTS) == metric_value(gateway, catalogue.OPEN_STREAMS) == 0
