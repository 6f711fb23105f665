"""The gateway itself: check, route, run, relay. Both doors call it."""

import asyncio
import contextlib
import functools
import logging
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

from paceline.config.schema import EngineConfig, GatewayConfig, Tunables
from paceline.core.generation import GenerationChunk, GenerationRequest
from paceline.core.model_identity import ModelIdentity
from paceline.core.plans import Plan, Route, SpeculationMode, SpeculationPreference
from paceline.core.sampling_params import SamplingParams
from paceline.errors import DrafterGroupNotFoundError, PacelineError, TargetUnavailableError
from paceline.gateway.answer import Answer
from paceline.gateway.answer_progress import AnswerProgress
from paceline.gateway.answer_stream import AnswerStreams
from paceline.gateway.chunk_stream import ChunkStream
from paceline.gateway.deadline import within
from paceline.gateway.gateway_request import GatewayRequest, new_request_id
from paceline.gateway.request_metrics import RequestMetrics
from paceline.gateway.target_pool import PlaceWish, PoolSnapshot, TargetPool
from paceline.gateway.token_texts import TokenTexts
from paceline.gateway.translation import translate
from paceline.routing.policy import Policy, RoutingSnapshot
from paceline.telemetry import catalogue
from paceline.telemetry.metrics import Metrics
from paceline.telemetry.trace_context import continue_trace
from paceline.text.tokenizer import TextTokenizer

logger = logging.getLogger(__name__)

_MAX_ECHO = 200  # characters of the client's own words in an error message
_WARM_UP = GatewayRequest(
    "Hello",
    SamplingParams(temperature=0.0),
    max_tokens=1,
    speculation=SpeculationPreference(SpeculationMode.OFF),
)


class GatewayService:
    """Turns a `GatewayRequest` into an `Answer`. Called from one asyncio loop."""

    def __init__(
        self,
        pool: TargetPool,
        tokenizer: TextTokenizer,
        *,
        policy: Policy,
        gateway: GatewayConfig,
        engine: EngineConfig,
        verifier: str,
        tunables: Tunables,
        metrics: Metrics,
    ) -> None:
        self._pool = pool
        self._streams = AnswerStreams(pool, metrics)
        self._tokenizer = tokenizer
        self.token_texts = TokenTexts(tokenizer)
        self._policy = policy
        self._gateway = gateway
        self._cache_tokens = engine.kv_cache_tokens // engine.page_size * engine.page_size
        self._verifier = verifier
        self._tunables = tunables
        self._metrics = metrics
        # One thread: long prompts must not stop the loop, and a tokenizer is used by one caller at a time.
        self._tokenising = ThreadPoolExecutor(max_workers=1, thread_name_prefix="tokenise")
        self._token_seen = False

    def apply_tunables(self, tunables: Tunables) -> None:
        """Use new settings for requests that arrive from now on."""
        self._tunables = tunables

    @property
    def max_body_bytes(self) -> int:
        """Largest request body."""
        return self._gateway.max_body_bytes

    @property
    def request_timeout_s(self) -> float:
        """Longest time of one request, from receipt to last token."""
        return self._gateway.request_timeout_s

    @property
    def verifier(self) -> str:
        """The deployment's verifier."""
        return self._verifier

    def identity(self) -> ModelIdentity:
        """The served model. Raises TargetUnavailableError before the first replica is up."""
        identity = self._pool.identity
        if identity is None:
            raise TargetUnavailableError("no replica has started yet")
        return identity

    def snapshot(self) -> PoolSnapshot:
        """The fleet at this moment."""
        return self._pool.snapshot()

    def not_ready_reason(self) -> str | None:
        """Why requests would fail now; None once a real token has been generated and a target is there."""
        if not self._pool.snapshot().ready:
            return "no target replica is ready"
        if not self._token_seen:
            return "no token has been generated yet"
        return None

    def refused(self, error: PacelineError, door: str) -> None:
        """Count a request that a door turned away before it could become a `GatewayRequest`."""
        self._metrics.count(catalogue.FAILED_REQUESTS, door=door, reason=error.reason)

    async def open(self, request: GatewayRequest) -> Answer:
        """Check, route and start a request; returns once its first tokens are there.

        Raises a PacelineError if that fails: nothing has been sent to the client by then. Cancelling the
        call, or leaving the answer, ends the generation.
        """
        watch = RequestMetrics(self._metrics, request)
        started_s = asyncio.get_running_loop().time() - request.upload_s
        deadline_s = self._deadline_s(request)
        try:
            identity = self.identity()
            async with within(deadline_s, started_s):
                generation = await self._prepare(request, identity)
            watch.routed(generation.plan, len(generation.prompt_token_ids))
            progress = AnswerProgress(request.num_choices)
            stream = ChunkStream(
                self._streams.stream(
                    generation,
                    self._wish(request, started_s + deadline_s),
                    progress,
                    functools.partial(self._route_again, request.speculation),
                ),
                num_choices=request.num_choices,
                deadline_s=deadline_s,
                started_s=started_s,
            )
            first_batch = await _first_batch(stream)
        except BaseException as error:
            watch.failed(error)
            raise
        # Not the plan of an attempt that brought nothing.
        generation = replace(generation, plan=progress.plan or generation.plan)
        watch.first_token(generation.plan)
        self._token_seen = True
        return Answer(
            generation,
            stream,
            request_id=request.request_id,
            first_batch=first_batch,
            identity=progress.identity or identity,
            verifier=self._verifier,
            watch=watch,
        )

    def close(self) -> None:
        """Give back the tokenising thread."""
        self._tokenising.shutdown(wait=False, cancel_futures=True)

    async def warm_up(self) -> None:
        """Generate one token through a target, uncounted: from then on the gateway can be ready.

        Raises a PacelineError while no target can do it.
        """
        generation = await self._prepare(replace(_WARM_UP, request_id=new_request_id()), self.identity())
        chunks = self._streams.stream(generation, PlaceWish(), AnswerProgress(1), lambda plan: plan)
        async with contextlib.aclosing(chunks) as batches:
            async for batch in batches:
                self._token_seen |= any(chunk.token_ids for chunk in batch)

    async def _prepare(self, request: GatewayRequest, identity: ModelIdentity) -> GenerationRequest:
        translated = await asyncio.get_running_loop().run_in_executor(
            self._tokenising,
            functools.partial(
                translate,
                request,
                tokenizer=self._tokenizer,
                identity=identity,
                limit_tokens=self._cache_tokens,
                default_max_tokens=self._gateway.default_max_tokens,
            ),
        )
        generation = GenerationRequest(
            key=f"{request.request_id}/1",
            prompt_token_ids=translated.prompt_token_ids,
            sampling=translated.sampling,
            seed=translated.seed,
            plan=self._route(request.speculation),
            num_choices=request.num_choices,
            explain=request.explain,
            traceparent=continue_trace(request.traceparent).traceparent,
        )
        logger.info(
            "request %s, label '%s': %s prompt tokens, %s, %s",
            request.request_id,
            request.label,
            len(generation.prompt_token_ids),
            generation.plan.route.value,
            generation.plan.reason,
        )
        return generation

    @staticmethod
    def _wish(request: GatewayRequest, deadline: float) -> PlaceWish:
        return PlaceWish(request.tenant, request.priority, deadline)

    def _deadline_s(self, request: GatewayRequest) -> float:
        own = request.deadline_s
        # A wish that is no time span is refused by the checks, which must not be out of time for that.
        return min(self.request_timeout_s, own) if own is not None and own > 0 else self.request_timeout_s

    def _route(self, wish: SpeculationPreference) -> Plan:
        snapshot = self._pool.snapshot()
        names = tuple(group.name for group in snapshot.drafter_groups)
        if wish.drafter is not None and wish.drafter not in names:
            if not snapshot.ready:
                raise TargetUnavailableError("the drafter groups are not known yet")
            raise DrafterGroupNotFoundError(wish.drafter[:_MAX_ECHO], names)
        limit = self._tunables.max_draft_tokens
        if wish.max_draft_tokens is not None and wish.max_draft_tokens > limit:
            wish = replace(wish, max_draft_tokens=limit)
        return self._policy.decide(
            wish,
            RoutingSnapshot(
                drafter_groups=snapshot.drafter_groups,
                queued=snapshot.queued,
                running=snapshot.running,
                default_draft_tokens=limit,
                speculation_enabled=self._tunables.speculation_enabled,
                groups_known=snapshot.ready,
                disabled_groups=self._tunables.disabled_groups,
            ),
        )

    def _route_again(self, wish: SpeculationPreference, plan: Plan) -> Plan:
        """The plan of a further attempt: as before, unless the drafter groups are known and others now."""
        try:
            return self._route(wish) if self._pool.snapshot().ready else plan
        except DrafterGroupNotFoundError:
            return Plan(Route.PLAIN, "its drafter group is not deployed any more")


async def _first_batch(stream: ChunkStream) -> Sequence[GenerationChunk]:
    """The first chunks. Whatever goes wrong, also a cancelled wait, ends the pool's stream."""
    try:
        batch = await stream.next_batch()
    except BaseException:
        await stream.close()
        raise
    return batch or ()
