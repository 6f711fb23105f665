"""Resident memory of an engine over many requests."""

import asyncio

import pytest

from paceline.bench.engine_endpoint import EngineEndpoint, in_process_config
from paceline.bench.memory_bench import MemorySetup, run_memory_bench
from paceline.bench.random_model import save_random_model


@pytest.fixture
def backend(tmp_path):
    """The native engine on a tiny random model, with an n-gram drafter."""
    endpoint = EngineEndpoint.start(in_process_config(str(save_random_model(tmp_path))))
    yield endpoint.backend
    asyncio.run(endpoint.close())


async def test_all_requests_are_sent_and_sizes_noted(backend):
    """Also those that are left half way; afterwards the engine holds nothing."""
    result = await run_memory_bench(backend, MemorySetup(requests=60, base_after=20, every=20), config={})
    await asyncio.sleep(0.2)

    assert list(result.data["rss_bytes"]) == ["20", "40", "60"]
    assert min(result.data["rss_bytes"].values()) > 2**20
    backend.parts.engine.check_integrity()


@pytest.mark.full
async def test_memory_after_ten_thousand_requests_is_that_after_five_hundred(backend):
    """Within 5 %."""
    result = await run_memory_bench(backend, MemorySetup(), config={})

    assert result.data["growth"] <= 0.05
