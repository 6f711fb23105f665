"""Sends a block of requests: as fast as a number of askers can, or when a schedule says so."""

import asyncio
import time
from collections import deque
from collections.abc import Sequence

from paceline.bench.endpoint import Endpoint
from paceline.bench.records import BenchQuestion, Sample
from paceline.errors import AnswerFailedError, PacelineError


async def run_closed(
    endpoint: Endpoint, questions: Sequence[BenchQuestion], *, concurrency: int, timeout_s: float
) -> list[Sample]:
    """``concurrency`` askers, each with one question at a time. Samples are in the order of the questions."""
    waiting = deque(enumerate(questions))
    samples: dict[int, Sample] = {}

    async def work() -> None:
        while waiting:
            index, question = waiting.popleft()
            samples[index] = await _ask(endpoint, question, due_s=None, timeout_s=timeout_s)

    await _all([work() for _ in range(concurrency)])
    return [samples[index] for index in range(len(questions))]


async def run_open(
    endpoint: Endpoint, questions: Sequence[BenchQuestion], due: Sequence[float], *, timeout_s: float
) -> list[Sample]:
    """Every question at its time (seconds from now), whatever became of those before it."""
    start_s = time.perf_counter()

    async def wait_and_ask(question: BenchQuestion, at_s: float) -> Sample:
        await asyncio.sleep(start_s + at_s - time.perf_counter())
        return await _ask(endpoint, question, due_s=start_s + at_s, timeout_s=timeout_s)

    pairs = zip(questions, due, strict=True)
    return await _all([wait_and_ask(question, at_s) for question, at_s in pairs])


async def _all(jobs: Sequence) -> list:  # type: ignore[type-arg]
    """Results in order; the first failure, which is a mistake of ours, ends all others."""
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(job) for job in jobs]
    return [task.result() for task in tasks]


async def _ask(endpoint: Endpoint, question: BenchQuestion, *, due_s: float | None, timeout_s: float) -> Sample:
    """One request; what the endpoint refuses or breaks off is a sample too."""
    sent_s = time.perf_counter()
    recording, error, detail = None, "", ""
    try:
        async with asyncio.timeout(timeout_s):
            recording = await endpoint.ask(question)
    except TimeoutError:
        error, detail = "CLIENT_TIMEOUT", f"no complete answer within {timeout_s:g} s"
    except PacelineError as failure:
        # A server's own reason says more than that the answer failed.
        error = str(failure.args[0]).upper() if isinstance(failure, AnswerFailedError) else failure.reason
        detail = str(failure)
    ended_s = time.perf_counter()
    return Sample(question, sent_s if due_s is None else due_s, sent_s, ended_s, recording, error, detail)
