"""The native engine behind the EngineBackend protocol: assembly, and the bridge to asyncio."""

import asyncio
import logging
from collections import defaultdict
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch

from paceline.backends.fingerprint import system_fingerprint
from paceline.config.schema import DeploymentConfig, Tunables
from paceline.core.generation import GenerationChunk, GenerationRequest
from paceline.core.load import TargetLoad
from paceline.core.model_identity import ModelIdentity
from paceline.drafting.drafter import Drafter
from paceline.drafting.host import DrafterHost, LocalTarget
from paceline.drafting.matching import TargetFacts
from paceline.drafting.registry import build_matching_drafter
from paceline.drafting.wanted_features import LAST, fused_folder, wanted_features
from paceline.engine.arrival import EngineModel
from paceline.engine.drafter_group import DrafterSlot
from paceline.engine.engine import Deliver, Engine, OnError
from paceline.engine.engine_thread import EngineThread
from paceline.engine.lent_pages import LentPages
from paceline.engine.scheduler import Scheduler, SchedulerLimits
from paceline.engine.speculation import Speculation
from paceline.engine.speculation_settings import SpeculationSettings
from paceline.errors import ContextLengthExceededError, EngineFailedError, PacelineError
from paceline.modeling.feature_tap import make_taps
from paceline.modeling.loader import LoadedModel, load_model
from paceline.modeling.runner import ModelRunner
from paceline.modeling.stored_features import StoredFeatures
from paceline.telemetry.metrics import Metrics
from paceline.text.tokenizer import TextTokenizer
from paceline.verification.verifier import make_verifier

logger = logging.getLogger(__name__)

_Event = list[GenerationChunk] | PacelineError


@dataclass(frozen=True, slots=True)
class NativeParts:
    """Everything below the bridge; tests assemble it from smaller pieces."""

    engine: Engine
    scheduler: Scheduler
    speculation: Speculation
    runner: ModelRunner
    identity: ModelIdentity
    facts: TargetFacts
    metrics: Metrics


class NativeBackend:
    """Runs an engine on its own thread and hands its chunks to the asyncio loop of each caller."""

    def __init__(
        self,
        assemble: Callable[[Deliver, OnError], NativeParts],
        *,
        step_timeout_s: float = 60.0,
        first_step_timeout_s: float = 600.0,
    ) -> None:
        """Assemble and start; ``assemble`` is given what takes each step's chunks, and its errors."""
        self._streams: dict[str, _Stream] = {}
        self._ended: PacelineError | None = None
        self._parts = assemble(self._deliver, self._fail)
        self._thread = EngineThread(
            self._parts.engine,
            on_error=self._fail,
            on_end=self._end,
            step_timeout_s=step_timeout_s,
            first_step_timeout_s=first_step_timeout_s,
        )
        self._thread.start()

    @classmethod
    def start(
        cls,
        model_folder: Path,
        *,
        config: DeploymentConfig,
        drafters: Mapping[str, Drafter],
        metrics: Metrics | None = None,
    ) -> "NativeBackend":
        """Load the model and start decoding; blocks for as long as loading takes.

        ``drafters`` are those by group that are not made here: all others whose place is in this process are.
        Raises ModelRefusedError if the model cannot be served right here, SetupError kinds where a drafter cannot be
        made, and LinkRefusedError where it does not fit the model.
        """
        metrics = metrics or Metrics()
        return cls(
            lambda deliver, on_error: assemble_native(
                model_folder, config, drafters, metrics=metrics, deliver=deliver, on_error=on_error
            ),
            step_timeout_s=config.engine.step_timeout_s,
            first_step_timeout_s=config.engine.first_step_timeout_s,
        )

    @property
    def identity(self) -> ModelIdentity:
        """The model that is served."""
        return self._parts.identity

    @property
    def facts(self) -> TargetFacts:
        """What drafters must match."""
        return self._parts.facts

    @property
    def metrics(self) -> Metrics:
        """Counters of this engine."""
        return self._parts.metrics

    @property
    def parts(self) -> NativeParts:
        """What the backend is made of, for inspection while it is idle."""
        return self._parts

    async def generate(self, request: GenerationRequest) -> AsyncIterator[Sequence[GenerationChunk]]:
        """Stream batches of chunks; see `EngineBackend.generate`."""
        self._check_fits(request)
        if request.key in self._streams:
            raise EngineFailedError(f"request {request.key} runs already")
        stream = _Stream(asyncio.get_running_loop(), remaining=len(request.starts))
        self._streams[request.key] = stream
        self._thread.submit(request)
        if self._ended is not None:
            stream.put(self._ended)
        try:
            while stream.remaining:
                event = await stream.events.get()
                if isinstance(event, PacelineError):
                    stream.remaining = 0
                    raise event
                stream.remaining -= sum(chunk.finish is not None for chunk in event)
                yield event
        finally:
            del self._streams[request.key]
            if stream.remaining:
                self._thread.abort(request.key)

    async def abort(self, key: str) -> None:
        """End a request at whatever point it is; its stream ends with chunks that say so."""
        self._thread.abort(key)

    def snapshot(self) -> TargetLoad:
        """Load at this moment, as far as another thread can tell."""
        pool, scheduler = self._parts.runner.pool, self._parts.scheduler
        return TargetLoad(
            running=len(scheduler.running),
            waiting=len(scheduler.waiting),
            total_pages=pool.num_pages,
            free_pages=scheduler.room.num_free,
            decode_tokens_per_s=self._parts.engine.decode_tokens_per_s,
            drafter_groups=self._parts.speculation.groups(),
        )

    def apply_tunables(self, tunables: Tunables) -> None:
        """Use new tunables from the next step on, for running answers too."""
        settings = _settings(tunables)
        self._thread.call(lambda: self._parts.speculation.apply(settings))

    def add_drafter(self, group: str, drafter: Drafter) -> None:
        """Take up a remote drafter group from the next step on."""
        self._thread.call(lambda: self._parts.speculation.add_group(group, DrafterSlot(drafter, local=False)))

    def remove_drafter(self, group: str, then: Callable[[], None]) -> None:
        """Let go of a drafter group, then call ``then`` on the engine's thread; its requests go on plain."""

        def remove() -> None:
            self._parts.speculation.remove_group(group)
            then()

        self._thread.call(remove)

    @property
    def stalled_s(self) -> float:
        """Time since work that waits has last got on, in seconds; 0 where none waits."""
        return self._thread.stalled_s

    def check_health(self) -> None:
        """Raise EngineFailedError if the engine's thread died or makes no progress."""
        self._thread.check_health()

    async def close(self) -> None:
        """End all requests and the thread."""
        await asyncio.get_running_loop().run_in_executor(None, self._thread.close)

    def _check_fits(self, request: GenerationRequest) -> None:
        """Refuse at once what could never be admitted."""
        pool = self._parts.runner.pool
        limit = min(self.identity.context_length, pool.num_pages * pool.page_size)
        num_prompt, max_tokens = len(request.prompt_token_ids), request.sampling.max_tokens
        if num_prompt + max_tokens > limit:
            raise ContextLengthExceededError(num_prompt, max_tokens, limit)

    def _deliver(self, chunks: list[GenerationChunk]) -> None:
        """Engine thread: one message per step and stream."""
        by_key: defaultdict[str, list[GenerationChunk]] = defaultdict(list)
        for chunk in chunks:
            by_key[chunk.key].append(chunk)
        for key, batch in by_key.items():
            self._post(key, batch)

    def _fail(self, keys: list[str], error: PacelineError) -> None:
        for key in keys:
            self._post(key, error)

    def _end(self, error: PacelineError) -> None:
        """Engine thread, last words: nothing will be answered any more."""
        self._ended = error
        self._fail(list(self._streams), error)

    def _post(self, key: str, event: _Event) -> None:
        stream = self._streams.get(key)
        if stream is not None:
            stream.put(event)


class _Stream:
    """Events of one request on their way to its asyncio loop."""

    def __init__(self, loop: asyncio.AbstractEventLoop, *, remaining: int) -> None:
        self.events: asyncio.Queue[_Event] = asyncio.Queue()
        self.remaining = remaining  # choices that have not finished
        self._loop = loop

    def put(self, event: _Event) -> None:
        """Hand over an event from any thread; lost if the loop is gone."""
        try:
            self._loop.call_soon_threadsafe(self.events.put_nowait, event)
        except RuntimeError:
            logger.debug("a stream's event loop has ended")


def _settings(tunables: Tunables) -> SpeculationSettings:
    return SpeculationSettings(
        enabled=tunables.speculation_enabled,
        max_draft_tokens=tunables.max_draft_tokens,
        wait_share=tunables.draft_wait_share,
        deadline_ms=tunables.link_deadline_ms,
        top_k=tunables.draft_top_k,
        adaptive=tunables.draft_adaptive,
        shadow_share=tunables.shadow_share,
        disabled_groups=frozenset(tunables.disabled_groups),
    )


def assemble_native(
    model_folder: Path,
    config: DeploymentConfig,
    drafters: Mapping[str, Drafter],
    *,
    metrics: Metrics,
    deliver: Deliver,
    on_error: OnError,
) -> NativeParts:
    """Load the target and put the engine together from its sections of the configuration."""
    torch.set_num_threads(config.engine.threads)
    loaded = load_model(model_folder, dtype=config.model.dtype, device=config.model.device)
    tokenizer = TextTokenizer.load(model_folder, vocab_size=loaded.vocab_size)
    return assemble_engine(
        loaded,
        tokenizer,
        config,
        drafters,
        metrics=metrics,
        deliver=deliver,
        on_error=on_error,
        folder=model_folder,
    )


def assemble_engine(
    loaded: LoadedModel,
    tokenizer: TextTokenizer,
    config: DeploymentConfig,
    drafters: Mapping[str, Drafter],
    *,
    metrics: Metrics,
    deliver: Deliver,
    on_error: OnError,
    folder: Path | None = None,
) -> NativeParts:
    """Put the engine together around a model that is loaded, from ``folder`` if it has one."""
    runner = _runner(loaded, config)
    verifier = make_verifier(config.verifier)
    context = min(config.model.max_context_tokens or loaded.context_length, loaded.context_length)
    identity = ModelIdentity(
        name=config.model.served_name,
        system_fingerprint=system_fingerprint(config, loaded.weights_version, tokenizer.vocabulary),
        context_length=context,
        vocabulary=tokenizer.vocabulary,
        eos_token_ids=tokenizer.eos_token_ids,
    )
    facts = TargetFacts(tokenizer.vocabulary, context, tuple(runner.features))
    scheduler = _scheduler(runner, config, metrics)
    local = LocalTarget(loaded, runner, LentPages(scheduler))
    host = DrafterHost(config.model.device, metrics, folder, config.model.dtype, local)
    speculation = Speculation(
        _slots(config, drafters, facts, host),
        rule=verifier.draw_rule,
        vocab_size=loaded.vocab_size,
        settings=_settings(config.tunables),
        metrics=metrics,
        features=StoredFeatures(runner.features, torch.device(loaded.device)),
    )
    engine = Engine(
        EngineModel(tokenizer, tokenizer.eos_token_ids, context),
        runner,
        scheduler,
        speculation,
        verifier,
        metrics=metrics,
        deliver=deliver,
        on_error=on_error,
    )
    return NativeParts(engine, scheduler, speculation, runner, identity, facts, metrics)


def _runner(loaded: LoadedModel, config: DeploymentConfig) -> ModelRunner:
    section, kinds = config.engine, wanted_features(config)
    heads = [fused_folder(kind) for kind in kinds if kind != LAST]
    runner = ModelRunner(
        loaded,
        num_pages=-(-section.kv_cache_tokens // section.page_size),
        page_size=section.page_size,
        taps=make_taps(loaded, last=LAST in kinds, fused=heads),
    )
    if section.poison_freed_pages:
        runner.poison_freed()
    return runner


def _scheduler(runner: ModelRunner, config: DeploymentConfig, metrics: Metrics) -> Scheduler:
    section = config.engine
    limits = SchedulerLimits(
        section.max_running, section.max_waiting, section.step_tokens, prefix_cache=section.prefix_cache
    )
    return Scheduler(runner.pool, limits, metrics)


def _slots(
    config: DeploymentConfig, given: Mapping[str, Drafter], facts: TargetFacts, host: DrafterHost
) -> dict[str, DrafterSlot]:
    """Drafters by group, in the order of the configuration: ``given`` ones, and those of this process."""
    slots: dict[str, DrafterSlot] = {}
    for group, section in config.drafters.items():
        local = section.place == "in_process"
        if group in given:
            slots[group] = DrafterSlot(given[group], local)
        elif local:
            slots[group] = DrafterSlot(build_matching_drafter(group, section, facts, host), local)
    return slots
