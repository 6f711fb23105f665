"""The native engine on its thread: streams, aborts, refusals and faults, on a tiny real model."""

import asyncio
import dataclasses

import pytest

from paceline.backends.native import NativeBackend
from paceline.config.schema import DeploymentConfig, DrafterConfig, EngineConfig, ModelConfig, Tunables
from paceline.core.generation import ChoiceStart, FinishReason, GenerationRequest
from paceline.core.plans import Plan, Route
from paceline.core.sampling_params import SamplingParams
from paceline.drafting.ngram import NgramDrafter
from paceline.errors import CacheCorruptionError, ContextLengthExceededError, EngineFailedError, OverloadedError
from tiny_models import save_tiny_model
from tiny_tokenizers import byte_level

PROMPT = (5, 6, 7, 5, 6, 7)


@pytest.fixture
def start(tmp_path):
    """Starts backends on a tiny model; closes them at the end."""
    folder = save_tiny_model(tmp_path, vocab_size=320)
    byte_level().save_pretrained(str(folder))
    started = []

    def make(**engine):
        config = DeploymentConfig(
            model=ModelConfig(source=str(folder), name="tiny"),
            engine=EngineConfig(**{"threads": 1, "kv_cache_tokens": 2048, "page_size": 4, **engine}),
            drafters={"ngram": DrafterConfig(method="ngram", place="in_process")},
        )
        started.append(NativeBackend.start(folder, config=config, drafters={"ngram": NgramDrafter(min_match=1)}))
        return started[-1]

    yield make
    for backend in started:
        asyncio.run(backend.close())


def request(key, *, drafter=None, prompt=PROMPT, num_choices=1, **sampling):
    plan = Plan(Route.SPECULATIVE, "t", drafter, 4) if drafter else Plan(Route.PLAIN, "t")
    params = SamplingParams(**{"max_tokens": 24, "ignore_eos": True, **sampling})
    return GenerationRequest(key, prompt, params, 3, plan, num_choices)


async def collect(backend, req):
    return [chunk async for batch in backend.generate(req) for chunk in batch]


def ids_of(chunks):
    return tuple(token_id for chunk in chunks for token_id in chunk.token_ids)


def text_of(chunks):
    return "".join(chunk.text for chunk in chunks)


async def idle(backend):
    """Wait until nothing runs, then check that nothing is held."""
    for _ in range(200):
        load = backend.snapshot()
        if not load.running and not load.waiting:
            break
        await asyncio.sleep(0.02)
    backend.parts.engine.check_integrity()
    assert backend.snapshot().free_pages == backend.snapshot().total_pages
    backend.check_health()


async def test_many_streams_at_once_equal_each_alone(start):
    """Plain and speculative streams in one batch give the ids of each by itself."""
    backend = start()
    alone = {n: ids_of(await collect(backend, request(f"a{n}/1", prompt=PROMPT[: n % 6 + 1]))) for n in range(6)}
    jobs = [
        collect(backend, request(f"b{n}/1", prompt=PROMPT[: n % 6 + 1], drafter="ngram" if n % 2 else None))
        for n in range(12)
    ]
    together = await asyncio.gather(*jobs)

    assert [ids_of(chunks) for chunks in together] == [alone[n % 6] for n in range(12)]
    await idle(backend)


async def test_a_broken_stream_goes_on_in_another_replica(start):
    """Both choices of a drafted request are resumed from whatever had arrived; ids and text are the whole answer's."""
    first, second = start(), start()
    whole = await collect(first, request("w/1", drafter="ngram", num_choices=2, temperature=1.0))
    for num_batches in (1, 3, 7):
        stream = first.generate(request(f"r{num_batches}/1", drafter="ngram", num_choices=2, temperature=1.0))
        arrived = [chunk for _ in range(num_batches) for chunk in await anext(stream)]
        await stream.aclose()
        by_choice = [[chunk for chunk in arrived if chunk.choice == choice] for choice in range(2)]
        starts = tuple(
            ChoiceStart(choice, ids_of(chunks), len(text_of(chunks)))
            for choice, chunks in enumerate(by_choice)
            if not (chunks and chunks[-1].finish)
        )
        again = request(f"r{num_batches}/2", drafter="ngram", num_choices=2, temperature=1.0)
        rest = await collect(second, dataclasses.replace(again, resumed=starts))
        for choice in range(2):
            parts = [chunk for chunk in (*arrived, *rest) if chunk.choice == choice]
            reference = [chunk for chunk in whole if chunk.choice == choice]
            assert ids_of(parts) == ids_of(reference)
            assert text_of(parts) == text_of(reference)
            assert parts[-1].stats.completion_tokens == 24
    await idle(first)
    await idle(second)


async def test_closing_a_stream_ends_the_request(start):
    """A caller that walks away frees pages and sessions within a step."""
    backend = start()
    stream = backend.generate(request("gone/1", drafter="ngram", max_tokens=400))
    await anext(stream)
    await stream.aclose()

    await idle(backend)


async def test_an_abort_by_key_ends_the_stream_with_a_reason(start):
    """Every choice gets a last chunk that says abort; unknown keys are ignored."""
    backend = start()
    stream = backend.generate(request("r/1", num_choices=2, max_tokens=400))
    first = await anext(stream)
    await backend.abort("nobody/1")
    await backend.abort("r/1")
    chunks = [*first, *[chunk async for batch in stream for chunk in batch]]
    last = {chunk.choice: chunk for chunk in chunks if chunk.finish}

    assert {choice: chunk.finish for choice, chunk in last.items()} == {0: FinishReason.ABORT, 1: FinishReason.ABORT}
    await idle(backend)


async def test_what_can_never_fit_is_refused_at_once(start):
    """A request larger than the context or the cache fails before it queues, and others go on."""
    backend = start(kv_cache_tokens=128)
    with pytest.raises(ContextLengthExceededError, match="limit is 128"):
        await collect(backend, request("big/1", max_tokens=200))

    assert len(ids_of(await collect(backend, request("small/1")))) == 24


async def test_a_full_queue_is_overload_and_not_a_hang(start):
    """Requests beyond the queue get OverloadedError; the rest finish."""
    backend = start(max_running=1, max_waiting=1)
    jobs = [collect(backend, request(f"r{n}/1")) for n in range(6)]
    outcomes = await asyncio.gather(*jobs, return_exceptions=True)
    refused = [outcome for outcome in outcomes if isinstance(outcome, OverloadedError)]

    assert 0 < len(refused) < 6
    assert len(refused) + sum(isinstance(outcome, list) for outcome in outcomes) == 6
    await idle(backend)


async def test_a_step_that_raises_ends_its_requests_and_nothing_else(start, monkeypatch):
    """The error reaches the clients of that step; the next request works."""
    backend = start()
    forward = backend.parts.runner.forward
    monkeypatch.setattr(backend.parts.runner, "forward", lambda rows: 1 / 0)
    with pytest.raises(EngineFailedError, match="ZeroDivisionError"):
        await collect(backend, request("hit/1"))
    monkeypatch.setattr(backend.parts.runner, "forward", forward)

    assert len(ids_of(await collect(backend, request("next/1")))) == 24
    await idle(backend)


async def test_repeated_failures_make_the_replica_unhealthy(start, monkeypatch):
    """Three failed steps in a row, and the health check says so."""
    backend = start()
    monkeypatch.setattr(backend.parts.runner, "forward", lambda rows: 1 / 0)
    for n in range(3):
        with pytest.raises(EngineFailedError):
            await collect(backend, request(f"r{n}/1"))

    with pytest.raises(EngineFailedError, match="3 steps in a row"):
        backend.check_health()


async def test_an_answer_that_ends_in_a_failing_step_is_not_forgotten(start, monkeypatch):
    """Its last tokens cannot be delivered any more, so its client gets the error, and does not wait for ever."""
    backend = start()
    speculation = backend.parts.speculation
    request_drafts = speculation.request

    def fail_at_the_end(sequences):
        sequences = list(sequences)
        if len(backend.parts.scheduler.running) == 2 and len(sequences) == 1:
            raise ValueError("planted")
        request_drafts(sequences)

    monkeypatch.setattr(speculation, "request", fail_at_the_end)
    jobs = [collect(backend, request("short/1", max_tokens=6)), collect(backend, request("long/1", max_tokens=60))]
    outcomes = await asyncio.wait_for(asyncio.gather(*jobs, return_exceptions=True), 20)

    assert [type(outcome) for outcome in outcomes] == [EngineFailedError, EngineFailedError]
    await idle(backend)


async def test_a_request_that_cannot_be_queued_hears_of_it(start, monkeypatch):
    """Whatever building a sequence raises reaches its sender; the thread goes on."""
    backend = start()
    monkeypatch.setattr("paceline.engine.engine.sequences_of", lambda *_: 1 / 0)
    with pytest.raises(EngineFailedError, match="ZeroDivisionError"):
        await asyncio.wait_for(collect(backend, request("hit/1")), 20)
    monkeypatch.undo()

    assert len(ids_of(await collect(backend, request("next/1")))) == 24


async def test_a_message_that_raises_does_not_end_the_thread(start):
    """A faulty action between steps is logged and the next request works."""
    backend = start()
    backend._thread.call(lambda: 1 / 0)

    assert len(ids_of(await collect(backend, request("next/1")))) == 24


async def test_corruption_in_a_step_ends_requests_and_makes_the_replica_unhealthy(start, monkeypatch):
    """Clean-up that fails as well hangs nobody, and the damage is remembered."""
    backend = start()

    def broken(pages):
        raise CacheCorruptionError("planted")

    monkeypatch.setattr(backend.parts.runner.pool, "release", broken)
    with pytest.raises(CacheCorruptionError, match="planted"):
        await asyncio.wait_for(collect(backend, request("hit/1")), 20)
    monkeypatch.undo()

    with pytest.raises(CacheCorruptionError, match="planted"):
        backend.check_health()


async def test_streams_end_when_the_backend_closes(start):
    """Running streams and later ones get an error, never silence."""
    backend = start()
    running = asyncio.create_task(collect(backend, request("running/1", max_tokens=400)))
    await asyncio.sleep(0.1)
    await backend.close()

    with pytest.raises(EngineFailedError, match="shutting down"):
        await asyncio.wait_for(running, 20)
    with pytest.raises(EngineFailedError, match="shutting down"):
        await asyncio.wait_for(collect(backend, request("late/1")), 20)


async def test_a_key_cannot_run_twice_at_once(start):
    """The second stream is refused and the first goes on."""
    backend = start()
    stream = backend.generate(request("r/1", max_tokens=50))
    first = await anext(stream)
    with pytest.raises(EngineFailedError, match="runs already"):
        await collect(backend, request("r/1"))

    assert len(ids_of([*first, *[c async for batch in stream for c in batch]])) == 50


async def test_tunables_reach_running_answers(start):
    """The kill switch stops drafting in mid-answer and changes no token."""
    backend = start()
    reference = ids_of(await collect(backend, request("plain/1", temperature=0.0, max_tokens=200)))
    stream = backend.generate(request("spec/1", drafter="ngram", temperature=0.0, max_tokens=200))
    chunks = list(await anext(stream))
    backend.apply_tunables(Tunables(speculation_enabled=False))
    chunks += [chunk async for batch in stream for chunk in batch]

    assert ids_of(chunks) == reference
    assert chunks[-1].stats.switches == 1


async def test_the_identity_names_what_a_seed_replays_on(start):
    """Context, end ids and a fingerprint are there for gateways and drafters."""
    identity = start().identity

    assert identity.name == "tiny"
    assert identity.context_length == 512
    assert identity.vocabulary.size == 320
    assert identity.system_fingerprint.startswith("fp_")
