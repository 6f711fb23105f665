"""The switch that fills freed pages with NaN, on a tiny real model."""

import pytest

from paceline.backends.native import assemble_engine
from paceline.config.schema import DeploymentConfig, DrafterConfig, EngineConfig, ModelConfig
from paceline.core.generation import GenerationRequest
from paceline.core.plans import Plan, Route
from paceline.core.sampling_params import SamplingParams
from paceline.drafting.ngram import NgramDrafter
from paceline.modeling.loader import load_model
from paceline.telemetry.metrics import Metrics
from paceline.text.tokenizer import TextTokenizer
from tiny_models import save_tiny_model
from tiny_tokenizers import byte_level


@pytest.mark.parametrize("page_size", [1, 4])
def test_freed_pages_hold_nan_and_nobody_reads_them(page_size, tmp_path):
    """With the switch on, whatever is free has NaN in every layer, and drafted answers are those of a clean cache."""
    folder = save_tiny_model(tmp_path, vocab_size=320)
    byte_level().save_pretrained(str(folder))
    loaded = load_model(folder, dtype="float32", device="cpu")
    answers = {}
    for poison in (True, False):
        config = DeploymentConfig(
            model=ModelConfig(source=str(folder)),
            engine=EngineConfig(
                kv_cache_tokens=128, page_size=page_size, threads=1, poison_freed_pages=poison, prefix_cache=False
            ),
            drafters={"ngram": DrafterConfig(method="ngram", place="in_process")},
        )
        chunks, errors = [], []
        parts = assemble_engine(
            loaded,
            TextTokenizer.load(folder, vocab_size=loaded.vocab_size),
            config,
            {"ngram": NgramDrafter(min_match=1)},
            metrics=Metrics(strict=True),
            deliver=chunks.extend,
            on_error=lambda keys, error: errors.append(error),  # noqa: B023  # called within this turn
        )
        pool, freed = parts.runner.pool, set()
        if (told := pool.on_free) is not None:
            pool.on_free = lambda slots, told=told, freed=freed: (told(slots), freed.update(slots.tolist()))
        plan = Plan(Route.SPECULATIVE, "test", "ngram", 4)
        params = SamplingParams(temperature=0.0, max_tokens=40, ignore_eos=True)
        for number in range(3):  # the later ones in pages that the first one has left
            parts.engine.add(GenerationRequest(f"r{number}/1", (5, 6, 7, 5, 6, number), params, 3, plan))
            while parts.engine.has_work:
                parts.engine.step()
        parts.engine.check_integrity()
        assert not errors
        answers[poison] = [(chunk.key, token_id) for chunk in chunks for token_id in chunk.token_ids]
        assert pool.num_free == pool.num_pages
        assert bool(freed) is poison
        for tensor in (*parts.runner.store.keys, *parts.runner.store.values):
            assert bool(tensor[sorted(freed)].isnan().all())

    assert answers[True] == answers[False]
