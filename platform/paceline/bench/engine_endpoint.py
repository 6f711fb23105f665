"""The native engine in this process: no Ray, no gateway, no network."""

import itertools
import time
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import aclosing
from pathlib import Path
from typing import Any, cast

from paceline.backends.native import NativeBackend
from paceline.bench.endpoint import round_counts
from paceline.bench.prompts import prompt_ids
from paceline.bench.records import Arrival, BenchQuestion, DraftCounts, Recording
from paceline.config.load import load_config as load_deployment
from paceline.config.locate import find_config
from paceline.config.schema import DeploymentConfig, DrafterConfig, ModelConfig
from paceline.core.generation import ChoiceStats, GenerationChunk, GenerationRequest, RoundTrace
from paceline.core.plans import SpeculationMode, SpeculationPreference
from paceline.core.sampling_params import SamplingParams
from paceline.errors import EngineFailedError
from paceline.modeling.catalogue import CATALOGUE
from paceline.modeling.loader import load_config
from paceline.modeling.resolve import resolve_model
from paceline.routing.policy import RoutingSnapshot, SpeculateWhenLive
from paceline.text.tokenizer import TextTokenizer

_UINT64 = (1 << 64) - 1


def in_process_config(name: str) -> DeploymentConfig:
    """The config of a file, or of a model by name or folder with an n-gram drafter; all drafters in this process."""
    if name in CATALOGUE or Path(name).expanduser().is_dir():
        config = DeploymentConfig(model=ModelConfig(source=name), drafters={"ngram": DrafterConfig(method="ngram")})
    else:
        config = load_deployment(find_config(name))
    drafters = {group: section.model_copy(update={"place": "in_process"}) for group, section in config.drafters.items()}
    return config.model_copy(update={"drafters": drafters})


class EngineEndpoint:
    """Asks a `NativeBackend` of its own; routes as the gateway does. Prompts are chats where there is a template."""

    def __init__(self, backend: NativeBackend, tokenizer: TextTokenizer, config: DeploymentConfig) -> None:
        self.backend = backend
        self._tokenizer = tokenizer
        self._config = config
        self._policy = SpeculateWhenLive()
        self._keys = itertools.count()

    @classmethod
    def start(cls, config: DeploymentConfig) -> "EngineEndpoint":
        """Load the model and its drafters; blocks. Raises SetupError kinds, and LinkRefusedError for a misfit."""
        folder = resolve_model(config.model.source, config.model.revision)
        model = load_config(folder)
        tokenizer = TextTokenizer.load(folder, vocab_size=model.vocab_size)
        here = {name: section.model_copy(update={"place": "in_process"}) for name, section in config.drafters.items()}
        config = config.model_copy(update={"drafters": here})
        return cls(NativeBackend.start(folder, config=config, drafters={}), tokenizer, config)

    async def ask(self, question: BenchQuestion) -> Recording:
        """Generate one answer; see `Endpoint.ask`."""
        request = self._request(question)
        arrivals: list[Arrival] = []
        texts: list[str] = []
        rounds: list[RoundTrace] = []
        stats: ChoiceStats | None = None
        stream = cast("AsyncGenerator[Sequence[GenerationChunk], None]", self.backend.generate(request))
        async with aclosing(stream) as batches:
            async for batch in batches:
                now_s = time.perf_counter()
                num_tokens = sum(len(chunk.token_ids) for chunk in batch)
                if num_tokens:
                    arrivals.append(Arrival(now_s, num_tokens))
                for chunk in batch:
                    texts.append(chunk.text)
                    rounds.extend(chunk.rounds)
                    stats = chunk.stats or stats
        if stats is None:
            raise EngineFailedError("an answer ended without its counts")
        return Recording(
            arrivals=tuple(arrivals),
            text="".join(texts),
            prompt_tokens=stats.prompt_tokens,
            completion_tokens=stats.completion_tokens,
            exact_counts=True,
            drafting=_drafting(stats, rounds),
            cached_tokens=stats.cached_tokens,
            route=request.plan.route.value,
        )

    async def describe(self) -> Mapping[str, Any]:
        """The whole config, and what the weights and numerics are."""
        identity = self.backend.identity
        return {
            "endpoint": "in process",
            "prefix_cache": "cold: each variant and block has a cache of its own",
            "system_fingerprint": identity.system_fingerprint,
            "config": self._config.model_dump(mode="json"),
        }

    async def close(self) -> None:
        """End the engine's thread."""
        await self.backend.close()

    def _request(self, question: BenchQuestion) -> GenerationRequest:
        variant = question.variant
        snapshot = RoutingSnapshot(
            drafter_groups=self.backend.snapshot().drafter_groups,
            queued=0,
            running=0,
            default_draft_tokens=self._config.tunables.max_draft_tokens,
            speculation_enabled=self._config.tunables.speculation_enabled,
        )
        wish = SpeculationPreference(
            SpeculationMode(variant.speculation or "auto"), variant.drafter, variant.max_draft_tokens
        )
        return GenerationRequest(
            key=f"bench-{next(self._keys)}/1",
            prompt_token_ids=prompt_ids(question.prompt, self._tokenizer),
            sampling=SamplingParams(temperature=variant.temperature, max_tokens=question.max_tokens),
            seed=question.seed & _UINT64,
            plan=self._policy.decide(wish, snapshot),
            explain=True,
            tenant_salt=question.cache_salt,
        )


def _drafting(stats: ChoiceStats, rounds: list[RoundTrace]) -> DraftCounts:
    counts = tuple(
        round_counts(len(trace.drafted), trace.accepted, parents=trace.parents, path=trace.path) for trace in rounds
    )
    return DraftCounts(stats.rounds, stats.tested, stats.accepted, counts)
