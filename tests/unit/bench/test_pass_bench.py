"""The plan and the arithmetic of `bench pass`, with candidates whose speed is written down."""

from pathlib import Path

import pytest

from paceline.bench import pass_bench
from paceline.bench.pass_candidates import EngineCandidate, Timing
from paceline.bench.pass_matmuls import CompiledMatmuls
from paceline.bench.pass_records import PassSetup
from paceline.bench.report import to_json
from paceline.errors import ConfigError, EngineFailedError

PROMPTS = tuple((index, index + 1) for index in range(6))
SECONDS_PER_TOKEN = {"engine": 0.010, "eager": 0.030, "sdpa": 0.020, "static": 0.025}


class _Worker:
    """Answers by formula: two threads are fastest; a pass over n tokens takes 10 + n ms."""

    def __init__(self, build):
        if build.func is CompiledMatmuls:
            raise EngineFailedError("no compiler")
        self.kind = "engine" if build.func is EngineCandidate else build.args[-1]

    def __enter__(self):
        return self

    def __exit__(self, *_):
        pass

    def close(self):
        pass

    def call(self, method, *arguments, threads):
        self.factor = {1: 2.0, 2: 1.0, 3: 1.5}[threads]
        return getattr(self, method)(*arguments)

    def generate(self, prompts, num_tokens):
        seconds = SECONDS_PER_TOKEN[self.kind] * self.factor * num_tokens * (1 + len(prompts)) / 2
        return Timing(seconds, seconds / num_tokens, num_tokens * len(prompts))

    def passes(self, rows, count):
        return 0.008 * self.factor * count * (1 + rows / 100)

    def pass_times(self, sizes, context):
        return [(10 + size) / 1e3 * self.factor for size in sizes]


@pytest.fixture
def result(monkeypatch):
    """A whole measurement over scripted workers."""
    monkeypatch.setattr(pass_bench, "Worker", _Worker)
    setup = PassSetup(Path("model"), PROMPTS, threads=(1, 2, 3), num_tokens=50, sizes=(1, 8), parallel=16)
    return pass_bench.run_pass_bench(setup, lambda _: None)


def test_each_candidate_gets_its_fastest_form(result):
    """Two threads everywhere, the fastest of stock's three, and of the products those that can be had."""
    assert result.data["chosen"] == {
        "engine": {"kind": "engine", "threads": 2},
        "stock": {"kind": "sdpa", "threads": 2},
        "matmuls": {"kind": "onednn", "threads": 2},
        "parallel": {"kind": "engine", "threads": 2},
    }


def test_the_ratios_are_those_of_the_candidates(result):
    """Over stock: 20 to 10 ms a token; over matmuls: 8 ms and four hundredths to 10; 16 at a time: 16 / 8.5."""
    assert result.data["engine_over_stock"]["ratio"] == pytest.approx(2.0)
    assert result.data["engine_decode_over_matmuls"]["4"]["ratio"] == pytest.approx(0.832)
    assert result.data["parallel_over_one"]["ratio"] == pytest.approx(16 / 8.5)


def test_v_is_relative_to_one_token(result):
    """18 ms to 11 ms in every block."""
    assert result.data["v"]["8"] == pytest.approx([18 / 11] * 5)


def test_every_prompt_is_measured_once_on_every_side(result):
    """Six prompts over five blocks."""
    assert sum(len(block["engine"]) for block in result.data["blocks"]) == 6
    assert sum(len(block["stock"]) for block in result.data["blocks"]) == 6


def test_the_result_can_be_written(result):
    """With its provenance and its kind."""
    assert '"kind": "pass"' in to_json(result)


def test_blocks_without_prompts_are_refused():
    """Before anything is started."""
    with pytest.raises(ConfigError, match="5 blocks"):
        pass_bench.run_pass_bench(PassSetup(Path("model"), PROMPTS[:4]), lambda _: None)
