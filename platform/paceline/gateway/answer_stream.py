"""One answer over as many attempts as it takes."""

import asyncio
import contextlib
import dataclasses
import itertools
import logging
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Sequence

from paceline.core.generation import GenerationChunk, GenerationRequest
from paceline.core.plans import Plan
from paceline.errors import PacelineError, TargetLeavingError, TargetLostError
from paceline.gateway.answer_progress import AnswerProgress
from paceline.gateway.resume_rule import Tally, after_failure
from paceline.gateway.target_pool import Place, PlaceWish, TargetPool
from paceline.gateway.turns import Turns
from paceline.telemetry import catalogue
from paceline.telemetry.metrics import Metrics

logger = logging.getLogger(__name__)

Batches = AsyncGenerator[Sequence[GenerationChunk], None]


class AnswerStreams:
    """Streams answers of a pool; an answer whose replica fails or leaves goes on elsewhere, unseen by the client.

    One per gateway, used from its loop.
    """

    def __init__(self, pool: TargetPool, metrics: Metrics) -> None:
        self._pool = pool
        self._metrics = metrics
        self._turns = Turns()

    async def stream(
        self, request: GenerationRequest, wish: PlaceWish, progress: AnswerProgress, replan: Callable[[Plan], Plan]
    ) -> Batches:
        """Run a request and stream its chunks, until every choice has ended.

        Each attempt has a key of its own and a plan of its own: ``replan`` makes a new one of the last. An answer
        that has begun goes on only where the system fingerprint is the same. Raises what `after_failure` raises.
        """
        request_id = request.key.rpartition("/")[0]
        tally = Tally()
        avoided: dict[str, float] = {}  # by replica id: the loop's time until which it is not chosen
        for number in itertools.count(1):
            place: Place | None = None
            progress.begin()
            try:
                async with self._place(wish, avoided) as place:
                    progress.runs_on(place.identity, request.plan)
                    attempt = _attempt(request, f"{request_id}/{number}", wish, progress)
                    async with contextlib.aclosing(self._run(place, attempt, progress, tally)) as batches:
                        async for batch in batches:
                            yield batch
            except PacelineError as error:
                if progress.finished:
                    raise
                further = after_failure(
                    error, tally, placed=place is not None, begun=progress.begun, advanced=progress.advanced
                )
                logger.warning("attempt %s/%s ended (%s): %s", request_id, number, further.reason, error)
            else:
                return
            self._metrics.count(catalogue.RESUMES if progress.begun else catalogue.RETRIES, reason=further.reason)
            tally = further.tally
            if place is not None:
                avoided[place.replica_id] = _now() + further.avoid_s
            await asyncio.sleep(further.pause_s)
            wish = dataclasses.replace(wish, resumed=True, fingerprint=progress.fingerprint)
            request = dataclasses.replace(request, plan=replan(request.plan))

    async def _run(self, place: Place, attempt: GenerationRequest, progress: AnswerProgress, tally: Tally) -> Batches:
        """What one attempt adds to the answer. Returns when the answer is complete."""
        async with contextlib.AsyncExitStack() as stack:
            end_turn = await stack.enter_async_context(self._turns.turn(place.replica_id)) if tally.losses else None
            batches = await stack.enter_async_context(contextlib.aclosing(place.stream(attempt)))
            async for batch in batches:
                fresh = progress.admit(batch)
                if end_turn is not None and progress.advanced:
                    end_turn()  # before the client reads, which may take its time
                if fresh:
                    yield fresh
                if progress.aborted:
                    raise TargetLeavingError("it aborted the answer")
            if not progress.finished:
                raise TargetLostError("its stream ended in the middle of the answer")

    @contextlib.asynccontextmanager
    async def _place(self, wish: PlaceWish, avoided: dict[str, float]) -> AsyncIterator[Place]:
        """A place that is on none of the replicas to avoid, as long as each is to be avoided."""
        async with contextlib.AsyncExitStack() as stack:
            while True:
                until = {replica: at for replica, at in avoided.items() if at > _now()}
                try:
                    async with asyncio.timeout_at(min(until.values(), default=None)) as limit:
                        there = dataclasses.replace(wish, exclude=wish.exclude.union(until))
                        place = await stack.enter_async_context(self._pool.place(there))
                        break
                except TimeoutError:
                    if not limit.expired():
                        raise
            yield place


def _attempt(request: GenerationRequest, key: str, wish: PlaceWish, progress: AnswerProgress) -> GenerationRequest:
    time_left_s = None if wish.deadline is None else wish.deadline - _now()
    return dataclasses.replace(request, key=key, resumed=progress.starts(), deadline_s=time_left_s)


def _now() -> float:
    return asyncio.get_running_loop().time()
