"""Closed and open loops, on an endpoint that takes no time of its own."""

import asyncio
import time

import pytest

from paceline.bench.drive import run_closed, run_open
from paceline.bench.records import BenchQuestion
from paceline.bench.variants import Variant
from paceline.errors import AnswerFailedError, OverloadedError
from scripted_endpoint import ScriptedEndpoint


def _questions(count):
    return [BenchQuestion("chat", f"q{index}", 8, index, Variant("a")) for index in range(count)]


async def test_a_closed_loop_keeps_so_many_in_flight_and_the_order():
    """Never more than asked for, all of them used, samples in the order of the questions."""
    endpoint = ScriptedEndpoint(lambda question: 0.002 if question.seed % 2 else 0.0)
    samples = await run_closed(endpoint, _questions(7), concurrency=3, timeout_s=10)

    assert endpoint.most_in_flight == 3
    assert [sample.question.seed for sample in samples] == list(range(7))
    assert all(sample.due_s == sample.sent_s for sample in samples)


async def test_an_open_loop_does_not_wait_for_answers():
    """All requests are sent though none has been answered; each is due at its own time."""
    endpoint = ScriptedEndpoint(lambda _: 0.02)
    start_s = time.perf_counter()
    samples = await run_open(endpoint, _questions(4), [0.0, 0.001, 0.002, 0.003], timeout_s=10)

    assert endpoint.most_in_flight == 4
    offsets = [sample.due_s - samples[0].due_s for sample in samples]
    assert offsets == pytest.approx([0.0, 0.001, 0.002, 0.003])
    assert samples[0].due_s >= start_s


async def test_a_client_that_is_late_is_measured_from_the_schedule():
    """Time that the loop was blocked for counts as waiting, and the lag shows it."""
    endpoint = ScriptedEndpoint(lambda _: 0.0)
    asyncio.get_running_loop().call_later(0.001, time.sleep, 0.1)
    (sample,) = await run_open(endpoint, _questions(1), [0.02], timeout_s=10)

    assert sample.sent_s - sample.due_s > 0.05
    assert sample.recording.arrivals[0].at_s - sample.due_s > 0.05


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (OverloadedError("the queue", 1.0), "OVERLOADED"),
        (AnswerFailedError("context_length_exceeded", "too long"), "CONTEXT_LENGTH_EXCEEDED"),
    ],
)
async def test_a_failure_is_a_sample_with_the_servers_reason(error, reason):
    """It neither ends the run nor vanishes."""
    endpoint = ScriptedEndpoint(lambda _: 0.0)
    endpoint.fail = lambda question: error if question.seed == 1 else None
    samples = await run_closed(endpoint, _questions(3), concurrency=1, timeout_s=10)

    assert [sample.error for sample in samples] == ["", reason, ""]
    assert samples[1].recording is None
    assert samples[1].error_detail == str(error)


async def test_an_answer_that_never_ends_is_a_failure():
    """The rest goes on."""
    endpoint = ScriptedEndpoint(lambda question: 60.0 if question.seed == 0 else 0.0)
    samples = await run_closed(endpoint, _questions(2), concurrency=1, timeout_s=0.3)

    assert [sample.error for sample in samples] == ["CLIENT_TIMEOUT", ""]


async def test_a_mistake_in_the_client_ends_the_run():
    """Only the endpoint's failures are results."""
    endpoint = ScriptedEndpoint(lambda _: 0.0)
    endpoint.fail = lambda _: KeyError("bug")

    with pytest.raises(ExceptionGroup):
        await run_closed(endpoint, _questions(1), concurrency=1, timeout_s=10)
