"""The same benchmark against an engine in this process, a REST app and a gRPC server."""

import asyncio
from contextlib import asynccontextmanager
from dataclasses import replace

import pytest

import grpc_door
import http_door
import stub_pool
from paceline.bench.engine_endpoint import EngineEndpoint, in_process_config
from paceline.bench.grpc_endpoint import GrpcEndpoint
from paceline.bench.http_endpoint import HttpEndpoint
from paceline.bench.prompts import BenchPrompt
from paceline.bench.records import BenchQuestion
from paceline.bench.run import RunSetup, run_benchmark
from paceline.bench.variants import Variant
from paceline.config.schema import Tunables
from paceline.errors import EngineFailedError
from tiny_models import save_tiny_model
from tiny_tokenizers import byte_level

PROMPTS = (BenchPrompt("chat", "hello hello hello"), BenchPrompt("code", "def def def"))
SIDES = (Variant("a", speculation="off"), Variant("b", speculation="on", drafter="ngram"))


@pytest.fixture
def engine(tmp_path):
    """The native engine on a tiny random model."""
    folder = save_tiny_model(tmp_path, vocab_size=320)
    byte_level().save_pretrained(str(folder))
    tunables = Tunables(draft_adaptive=False)  # drafts, whether they pay on a tiny model or not
    endpoint = EngineEndpoint.start(in_process_config(str(folder)).model_copy(update={"tunables": tunables}))
    yield endpoint
    asyncio.run(endpoint.close())


@asynccontextmanager
async def _http(pool):
    with http_door.serve(stub_pool.make_app(pool)) as url:
        endpoint = await HttpEndpoint.connect(url)
        try:
            yield endpoint
        finally:
            await endpoint.close()


@asynccontextmanager
async def _grpc(pool):
    with grpc_door.serve(stub_pool.make_service(pool)) as address:
        endpoint = GrpcEndpoint(address)
        try:
            yield endpoint
        finally:
            await endpoint.close()


DOORS = pytest.mark.parametrize("door", [_http, _grpc], ids=["http", "grpc"])


def _question(variant=SIDES[1], **changes):
    return BenchQuestion(
        **{"category": "chat", "prompt": "hello hello", "max_tokens": 12, "seed": 3, "variant": variant} | changes
    )


async def test_the_engine_alone_gives_exact_counts(engine):
    """Every token has an arrival, tau counts passes, and only the speculative side has drafts."""
    plain, speculative = [await engine.ask(_question(variant, max_tokens=120)) for variant in SIDES]

    assert plain.text == speculative.text
    for answer in (plain, speculative):
        assert sum(arrival.num_tokens for arrival in answer.arrivals) == answer.completion_tokens
        assert answer.exact_counts
        assert answer.drafting.passes == len(answer.drafting.rounds)
    assert (plain.route, plain.drafting.tested, plain.drafting.passes) == ("plain", 0, plain.completion_tokens)
    assert speculative.route == "speculative"
    assert sum(entry.tested for entry in speculative.drafting.rounds) == speculative.drafting.tested > 0
    assert sum(entry.accepted for entry in speculative.drafting.rounds) == speculative.drafting.accepted


async def test_only_requests_of_one_salt_share_a_prefix(engine):
    """So that the side that comes second in a block computes its prompts too."""
    long = _question(prompt="hello " * 20)
    await engine.ask(replace(long, cache_salt="a-0"))
    again = await engine.ask(replace(long, cache_salt="a-0"))
    other = await engine.ask(replace(long, cache_salt="b-0"))

    assert again.cached_tokens > 0
    assert other.cached_tokens == 0


async def test_a_whole_run_on_the_engine(engine):
    """Two sides, five blocks, provenance with the whole config, nothing left in the engine."""
    result = await run_benchmark(engine, RunSetup(PROMPTS, SIDES, max_tokens=6, concurrency=2))
    sides = result.data["variants"]

    assert {side["load"]["completed"] for side in sides.values()} == {10}
    assert sides["a"]["speed"]["headline"]["tau"] == 1.0
    assert result.provenance.config["config"]["engine"]["kind"] == "native"
    assert result.data["comparisons"]["b"]["ratio"] > 0
    assert engine.backend.snapshot().running == 0


@DOORS
async def test_the_doors_give_tokens_rounds_and_facts(door):
    """Counts per arrival are exact over both, because rounds or ids come along."""
    pool = stub_pool.StubPool()
    async with door(pool) as endpoint:
        answer = await endpoint.ask(_question(max_tokens=64))
        described = await endpoint.describe()

    assert answer.text == stub_pool.ANSWER
    assert answer.completion_tokens == len(pool.script) == sum(arrival.num_tokens for arrival in answer.arrivals)
    assert answer.exact_counts
    assert answer.route == "speculative"
    assert answer.drafting.passes == len(answer.drafting.rounds) == -(-len(pool.script) // pool.block)
    assert sum(entry.accepted for entry in answer.drafting.rounds) == answer.drafting.accepted
    assert "fp-0123" in str(described)


@DOORS
async def test_options_of_a_variant_arrive(door):
    """Mode, group, limit, temperature, seed and length are those of the question."""
    pool = stub_pool.StubPool()
    async with door(pool) as endpoint:
        await endpoint.ask(_question(Variant("b", "on", "ngram", 2, 0.5)))
        await endpoint.ask(_question(Variant("a", "off")))

    first, second = pool.requests
    assert (first.plan.drafter, first.plan.max_draft_tokens, first.sampling.temperature) == ("ngram", 2, 0.5)
    assert (first.seed, first.sampling.max_tokens) == (3, 12)
    assert (second.plan.drafter, second.sampling.greedy) == (None, True)


@DOORS
async def test_a_break_in_mid_answer_is_a_failed_request(door):
    """What was sent before it does not count."""
    pool = stub_pool.StubPool(fail_after=2, fail_with=EngineFailedError("boom"))
    async with door(pool) as endpoint:
        setup = RunSetup(PROMPTS, SIDES[:1], blocks=1, warmup=0)
        load = (await run_benchmark(endpoint, setup)).data["variants"]["a"]["load"]

    assert (load["completed"], load["tokens"], load["errors"]) == (0, 0, {"REQUEST_ABANDONED": 2})


@DOORS
async def test_a_request_that_ran_out_of_time_is_ended_on_the_server(door):
    """A client that gives up leaves nothing running."""
    pool = stub_pool.StubPool(delay_s=0.1, block=1)
    async with door(pool) as endpoint:
        setup = RunSetup(PROMPTS[:1], SIDES[:1], blocks=1, warmup=0, timeout_s=0.25)
        load = (await run_benchmark(endpoint, setup)).data["variants"]["a"]["load"]
        for _ in range(100):
            if not pool.running:
                break
            await asyncio.sleep(0.02)

    assert load["errors"] == {"CLIENT_TIMEOUT": 1}
    assert (pool.running, len(pool.aborted)) == (0, 1)
