"""What `bench pass` compares, on a tiny model in this process."""

import pytest
import torch

from paceline.bench.pass_candidates import EngineCandidate, StockCandidate, Timing, speed_of
from paceline.bench.pass_matmuls import CompiledMatmuls, OneDnnMatmuls
from paceline.bench.stock_model import ModelSpec
from paceline.kernels.decoder_layers import decoder_kernels
from tiny_models import save_tiny_model
from tiny_tokenizers import byte_level

PROMPT = (5, 6, 7, 8)


@pytest.fixture(scope="module")
def spec(tmp_path_factory):
    """A tiny random model with a tokenizer."""
    threads = torch.get_num_threads()
    folder = save_tiny_model(tmp_path_factory.mktemp("model"), vocab_size=320)
    byte_level().save_pretrained(str(folder))
    yield ModelSpec(folder, "float32", 512)
    torch.set_num_threads(threads)


def test_the_engine_decodes_exactly_what_is_asked_for(spec):
    """Alone and many at a time; nothing is left behind, so that calls can be repeated."""
    engine = EngineCandidate(spec, max_running=4)
    alone = engine.generate([PROMPT], 9)
    together = engine.generate([PROMPT] * 4, 9)

    assert (alone.tokens, together.tokens) == (9, 36)
    assert 0 < alone.first_s < alone.seconds
    engine._engine.check_integrity()


def test_every_pass_has_a_time(spec):
    """In the order of the sizes, and the pages go back."""
    engine = EngineCandidate(spec, max_running=4)
    times = engine.pass_times([1, 8, 1, 3], context=20)

    assert len(times) == 4
    assert min(times) > 0
    engine._engine.check_integrity()


@pytest.mark.parametrize("kind", ["eager", "sdpa", "static"])
def test_stock_generates_as_many_tokens(spec, kind):
    """End of text is no reason to stop early: a shorter answer would not be comparable."""
    assert StockCandidate(spec, kind).generate([PROMPT], 7).tokens == 7


def test_matmuls_are_those_of_the_model(spec):
    """Seven linear layers in each of two layers, and the head."""
    matmuls = OneDnnMatmuls(spec)

    assert len(matmuls._layers) == 2 * 7 + 1
    assert matmuls.passes(4, 3) > 0


@pytest.mark.skipif(decoder_kernels() is None, reason="no C compiler")
def test_compiled_matmuls_are_those_of_the_engine(spec):
    """Four packed products in each layer, and the head."""
    matmuls = CompiledMatmuls(spec)

    assert len(matmuls._linears) == 2 * 4 + 1
    assert matmuls.passes(4, 3) > 0


def test_speed_is_sum_over_sum():
    """A mean of rates would be 5.5."""
    assert speed_of([Timing(1.0, 0.1, 10), Timing(9.0, 0.1, 9)]) == pytest.approx(1.9)
