"""The second turn of a chat, from the REST door to the model: what is computed, and what usage says about it."""

from contextlib import asynccontextmanager

import httpx
import pytest

from paceline.backends.native import NativeBackend
from paceline.config.schema import DeploymentConfig, EngineConfig, GatewayConfig, Tunables
from paceline.gateway.http_app import build_app
from paceline.gateway.service import GatewayService
from paceline.gateway.target_pool import PoolSnapshot
from paceline.modeling.resolve import resolve_model
from paceline.routing.policy import SpeculateWhenLive
from paceline.telemetry import catalogue
from paceline.telemetry.metrics import Metrics
from paceline.text.tokenizer import TextTokenizer

QUESTION = "Which is the longest river of Europe, how long is it, and through which countries does it flow?"


class OneBackend:
    """A fleet of one engine in this process, and a place on it. Implements `TargetPool` and `Place`."""

    def __init__(self, backend: NativeBackend) -> None:
        self.identity = backend.identity
        self.replica_id = "one"
        self.stream = backend.generate

    @asynccontextmanager
    async def place(self, _wish):
        yield self

    def snapshot(self) -> PoolSnapshot:
        return PoolSnapshot(ready=True)


@pytest.mark.model
@pytest.mark.parametrize("page_size", [1, 16])
async def test_a_second_turn_with_a_tool_result_computes_only_what_is_new(page_size):
    """cached_tokens is at least the length of the first turn, answer included, less one page; the text is the same."""
    folder = resolve_model("smollm2-135m")
    config = DeploymentConfig(
        engine=EngineConfig(kv_cache_tokens=1024, page_size=page_size, threads=1, poison_freed_pages=True)
    )
    metrics = Metrics(strict=True)
    backend = NativeBackend.start(folder, config=config, drafters={}, metrics=metrics)
    service = GatewayService(
        OneBackend(backend),
        TextTokenizer.load(folder, vocab_size=backend.identity.vocabulary.size),
        policy=SpeculateWhenLive(),
        gateway=GatewayConfig(),
        engine=config.engine,
        verifier="coupled",
        tunables=Tunables(),
        metrics=Metrics(strict=True),
    )
    transport = httpx.ASGITransport(build_app(lambda: service))
    try:
        async with httpx.AsyncClient(transport=transport, base_url="http://gateway", timeout=120) as client:

            async def ask(messages):
                body = {"messages": messages, "max_tokens": 12, "temperature": 0}
                return (await client.post("/v1/chat/completions", json=body)).json()

            turn = [{"role": "user", "content": QUESTION}]
            first = await ask(turn)
            answer = first["choices"][0]["message"]["content"]
            turn += [
                {"role": "assistant", "content": answer},
                {"role": "tool", "tool_call_id": "1", "content": "Volga: 3531 km."},
            ]
            prefilled = metrics.value(catalogue.PREFILL_TOKENS)
            second = await ask(turn)
            again = await ask(turn)

        usage = second["usage"]
        cached = usage["prompt_tokens_details"]["cached_tokens"]
        assert first["usage"]["prompt_tokens_details"]["cached_tokens"] == 0
        assert first["usage"]["total_tokens"] - page_size <= cached < usage["prompt_tokens"]
        assert again["usage"]["prompt_tokens_details"]["cached_tokens"] >= usage["prompt_tokens"] - page_size
        assert again["choices"][0]["message"]["content"] == second["choices"][0]["message"]["content"]
        computed = metrics.value(catalogue.PREFILL_TOKENS) - prefilled
        assert computed <= usage["prompt_tokens"] - cached + page_size
    finally:
        await backend.close()
