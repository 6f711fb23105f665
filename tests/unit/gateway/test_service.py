import asyncio
from dataclasses import replace

import pytest

import stub_pool
from paceline.config.schema import Tunables
from paceline.core.generation import FinishReason, GenerationChunk
from paceline.core.plans import Route, SpeculationMode, SpeculationPreference
from paceline.errors import (
    DeadlineExceededError,
    DrafterGroupNotFoundError,
    RequestAbandonedError,
    TargetLostError,
    TargetUnavailableError,
)
from paceline.gateway.gateway_request import GatewayRequest
from paceline.telemetry import catalogue
from paceline.telemetry.metrics import Metrics

HELLO = GatewayRequest("hello", max_tokens=8)


async def _run(service, request=HELLO):
    async with await service.open(request) as answer:
        text = "".join([chunk.text async for batch in answer for chunk in batch])
    return text, answer.summary()


async def test_an_answer_has_text_and_facts():
    """The summary says how the answer was made and what replays it."""
    pool = stub_pool.StubPool()
    text, summary = await _run(stub_pool.make_service(pool), replace(HELLO, seed=5, max_tokens=None))

    assert text == stub_pool.ANSWER
    assert (summary.route, summary.drafter, summary.seed) == (Route.SPECULATIVE, "ngram", 5)
    assert (summary.model, summary.system_fingerprint, summary.verifier) == ("tiny", "fp-0123", "coupled")
    assert pool.ended == [pool.requests[0].key]


async def test_our_key_is_never_the_clients_id():
    """Two live requests with one label have keys of their own, numbered by attempt."""
    pool = stub_pool.StubPool()
    service = stub_pool.make_service(pool)

    await asyncio.gather(*(_run(service, GatewayRequest("hello", max_tokens=4, label="same")) for _ in range(2)))

    keys = [request.key for request in pool.requests]
    assert len(set(keys)) == 2
    assert all(key.endswith("/1") and "same" not in key for key in keys)


@pytest.mark.parametrize(
    ("wish", "tunables", "route", "budget"),
    [
        (SpeculationPreference(), Tunables(), Route.SPECULATIVE, 5),
        (SpeculationPreference(SpeculationMode.OFF), Tunables(), Route.PLAIN, 0),
        (SpeculationPreference(SpeculationMode.ON, "small"), Tunables(), Route.PLAIN, 0),
        (SpeculationPreference(max_draft_tokens=3), Tunables(), Route.SPECULATIVE, 3),
        (SpeculationPreference(max_draft_tokens=64), Tunables(), Route.SPECULATIVE, 5),
    ],
)
async def test_the_route_follows_wish_and_deployment(wish, tunables, route, budget):
    """A wish never exceeds the deployment's draft budget."""
    pool = stub_pool.StubPool()
    service = stub_pool.make_service(pool)
    service.apply_tunables(tunables)

    _, summary = await _run(service, replace(HELLO, speculation=wish))

    plan = pool.requests[0].plan
    assert (plan.route, plan.max_draft_tokens) == (route, budget)
    assert (summary.route, summary.reason) == (route, plan.reason)


async def test_the_route_is_that_of_the_attempt_that_answered():
    """One that was lost before its first token had another plan, and no part in the answer."""
    metrics = Metrics(strict=True)
    pool = stub_pool.StubPool(failures=[(0, TargetLostError("it died"))], delay_s=0.02)
    service = stub_pool.make_service(pool, metrics=metrics)
    answering = asyncio.create_task(_run(service))
    await pool.busy.wait()
    service.apply_tunables(Tunables(speculation_enabled=False))
    _, summary = await answering

    first, second = (request.plan for request in pool.requests)
    assert (first.route, second.route) == (Route.SPECULATIVE, Route.PLAIN)
    assert summary.reason.startswith(second.reason)
    labels = {"door": "http", "mode": "auto", "finish": "length"}
    assert metrics.value(catalogue.REQUESTS, route="plain", **labels) == 1


@pytest.mark.parametrize("off", [{"speculation_enabled": False}, {"disabled_groups": ("ngram",)}], ids=["all", "group"])
async def test_the_kill_switch_beats_every_wish(off):
    """The plan is plain and says who wanted that; it keeps the group for when it is turned on again."""
    pool = stub_pool.StubPool()
    service = stub_pool.make_service(pool)
    service.apply_tunables(Tunables(**off))

    await _run(service, replace(HELLO, speculation=SpeculationPreference(SpeculationMode.ON, "ngram")))

    plan = pool.requests[0].plan
    assert (plan.route, plan.drafter) == (Route.PLAIN, "ngram")
    assert plan.reason.startswith("the operator turned")


async def test_an_unknown_group_is_refused_whatever_the_mode():
    """The error lists the deployed groups, and nothing reaches a target."""
    pool = stub_pool.StubPool()
    wish = SpeculationPreference(SpeculationMode.OFF, "nowhere")

    with pytest.raises(DrafterGroupNotFoundError, match="ngram, small"):
        await stub_pool.make_service(pool).open(replace(HELLO, speculation=wish))
    assert not pool.requests


async def test_a_group_is_not_called_unknown_before_the_groups_are_known():
    """While no target has reported, a deployed group must not get a 404."""
    pool = stub_pool.StubPool(ready=False, groups=())

    with pytest.raises(TargetUnavailableError):
        await stub_pool.make_service(pool).open(replace(HELLO, speculation=SpeculationPreference(drafter="ngram")))


async def test_readiness_needs_a_real_token():
    """Before a token and without a target the reason says which is missing; a warm-up gives the first token."""
    pool = stub_pool.StubPool(started=False, ready=False)
    service = stub_pool.make_service(pool)
    assert "target" in service.not_ready_reason()
    with pytest.raises(TargetUnavailableError):
        await service.warm_up()

    pool.started = pool.ready = True
    assert "token" in service.not_ready_reason()
    await service.warm_up()
    assert service.not_ready_reason() is None
    assert pool.requests[-1].sampling.max_tokens == 1

    pool.ready = False
    assert "target" in service.not_ready_reason()


async def test_a_warm_up_is_not_counted():
    """Metrics show what clients asked for."""
    metrics = Metrics(strict=True)
    await stub_pool.make_service(stub_pool.StubPool(), metrics=metrics).warm_up()

    assert metrics.value(catalogue.PROMPT_TOKENS) == 0


async def test_cancelling_the_wait_for_the_first_token_aborts():
    """A client that leaves before the first token costs nothing afterwards."""
    pool = stub_pool.StubPool(delay_s=30)
    opening = asyncio.create_task(stub_pool.make_service(pool).open(HELLO))
    await pool.busy.wait()

    opening.cancel()
    with pytest.raises(asyncio.CancelledError):
        await opening

    assert (pool.running, len(pool.aborted)) == (0, 1)


async def test_a_first_batch_that_is_refused_frees_the_target():
    """An answer that its target aborted at once leaves no stream open."""
    pool = stub_pool.StubPool()
    closed = []

    async def aborted(request):
        try:
            yield [GenerationChunk(request.key, 0, 0, (), "", 0, finish=FinishReason.ABORT)]
            yield []
        finally:
            closed.append(request.key)

    pool.stream = aborted
    with pytest.raises(TargetUnavailableError):
        await stub_pool.make_service(pool).open(HELLO)

    assert closed == [f"{HELLO.request_id}/{number}" for number in range(1, 6)]


async def test_leaving_in_mid_answer_aborts():
    """Closing an answer ends its generation at once."""
    pool = stub_pool.StubPool()
    async with await stub_pool.make_service(pool).open(replace(HELLO, max_tokens=None)) as answer:
        async for _ in answer:
            break

    assert (pool.running, len(pool.aborted)) == (0, 1)


@pytest.mark.parametrize(("own", "client", "said"), [(0.05, None, "0.05"), (60, 0.04, "0.04"), (0.05, 9, "0.05")])
async def test_the_earlier_deadline_counts(own, client, said):
    """The gateway's and the client's limits both hold."""
    pool = stub_pool.StubPool(delay_s=30)
    service = stub_pool.make_service(pool, request_timeout_s=own)

    with pytest.raises(DeadlineExceededError, match=said):
        await service.open(replace(HELLO, deadline_s=client))
    assert pool.running == 0


async def test_every_end_is_counted_once():
    """Stop, length, abort and error each count under their name, and a refused request counts as failed only."""
    metrics = Metrics(strict=True)
    pool = stub_pool.StubPool()
    service = stub_pool.make_service(pool, metrics=metrics)
    await _run(service, replace(HELLO, max_tokens=None))
    await _run(service)
    async with await service.open(HELLO):
        pass
    pool.fail_with, pool.fail_after = TargetLostError("gone"), 1
    with pytest.raises(RequestAbandonedError):
        await _run(service)
    with pytest.raises(DrafterGroupNotFoundError):
        await service.open(replace(HELLO, speculation=SpeculationPreference(drafter="x")))

    def ended(finish):
        labels = {"door": "http", "mode": "auto", "route": "speculative", "finish": finish}
        return metrics.value(catalogue.REQUESTS, **labels)

    assert [ended(finish) for finish in ("stop", "length", "abort", "error")] == [1, 1, 1, 1]
    failed = [("REQUEST_ABANDONED", 1), ("TARGET_LOST", 0), ("DRAFTER_GROUP_NOT_FOUND", 1), ("INTERNAL", 0)]
    assert [(r, metrics.value(catalogue.FAILED_REQUESTS, door="http", reason=r)) for r, _ in failed] == failed
