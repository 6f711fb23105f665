"""The load: so many clients that each do one job after the other."""

import asyncio
import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from paceline.gateway.gateway_request import GatewayRequest
from soak.grpc_client import GrpcClient
from soak.hearing import Hearing
from soak.jobs import Door, Job, Manner
from soak.rest_client import RestClient
from soak.truth import Truth
from soak.verdict import Verdict, is_busy, judge

_MAX_RETRIES = 20
_MAX_RETRY_AFTER_S = 30.0


@dataclass(frozen=True)
class Fate:
    """One job, what its client heard, and the verdict."""

    job: Job
    hearing: Hearing
    verdict: Verdict


@dataclass
class Load:
    """Jobs to do and what became of them."""

    jobs: Sequence[Job]
    questions: Sequence[GatewayRequest]
    truths: Sequence[Truth]
    fates: list[Fate] = field(default_factory=list)

    def __post_init__(self) -> None:
        # REST takes bad words as text, gRPC as ids.
        self._by_ids = [
            replace(question, bad_words=(), sampling=replace(question.sampling, bad_words=truth.bad_words))
            for question, truth in zip(self.questions, self.truths, strict=True)
        ]

    @property
    def num_done(self) -> int | None:
        """Jobs that have ended; None once all have."""
        done = len(self.fates)
        return None if done == len(self.jobs) else done

    async def run(self, url: str, grpc_address: str, *, at_a_time: int) -> None:
        """Do all jobs, ``at_a_time`` of them at any moment."""
        rest, grpc = RestClient(url), GrpcClient(grpc_address)
        waiting = iter(self.jobs)

        async def client() -> None:
            for job in waiting:
                self.fates.append(await self._do(job, grpc if job.door is Door.GRPC else rest))

        try:
            await asyncio.gather(*(client() for _ in range(at_a_time)))
        finally:
            await rest.close()
            await grpc.close()

    async def _do(self, job: Job, client: RestClient | GrpcClient) -> Fate:
        question = (self._by_ids if job.door is Door.GRPC else self.questions)[job.question]
        for attempt in range(_MAX_RETRIES):
            hearing = Hearing(retries=attempt)
            try:
                await _ask(client, job, question, hearing)
            except Exception as error:  # noqa: BLE001  # whatever a client trips over, its request is lost
                hearing.broken = f"{type(error).__name__}: {error}"
            hearing.total_s = time.monotonic() - hearing.started_s
            if not is_busy(hearing):
                break
            await asyncio.sleep(min(float(hearing.retry_after or 1), _MAX_RETRY_AFTER_S))
        return Fate(job, hearing, judge(job, self.truths[job.question], hearing, question.seed or 0))


async def _ask(client: RestClient | GrpcClient, job: Job, question: GatewayRequest, hearing: Hearing) -> None:
    if job.manner is not Manner.UNHEARD:
        await client.ask(job, question, hearing)
        return
    try:
        await asyncio.wait_for(client.ask(job, question, hearing), job.patience_s)
    except TimeoutError:
        hearing.gave_up = True
