"""Arrival schedules and traces."""

import statistics

import pytest

from paceline.bench.load import closed_plan, open_plan, poisson_arrivals, read_trace, trace_plan
from paceline.bench.prompts import BenchPrompt
from paceline.errors import ConfigError

PROMPTS = (BenchPrompt("chat", "one two three"), BenchPrompt("code", "four five"))


def test_poisson_gaps_are_exponential_with_the_rate_asked_for():
    """Mean and standard deviation of the gaps are both 1 / rate, and the same seed gives the same times."""
    times = poisson_arrivals(4.0, 20_000, seed=1)
    gaps = [b - a for a, b in zip([0.0, *times], times, strict=False)]

    assert statistics.mean(gaps) == pytest.approx(0.25, rel=0.03)
    assert statistics.stdev(gaps) == pytest.approx(0.25, rel=0.03)
    assert times == poisson_arrivals(4.0, 20_000, seed=1)
    assert times != poisson_arrivals(4.0, 20_000, seed=2)


def test_a_rate_of_nothing_is_refused():
    """It would wait for ever."""
    with pytest.raises(ConfigError, match="above 0"):
        poisson_arrivals(0.0, 1, seed=0)


def test_a_closed_loop_begins_the_prompts_again():
    """Its requests have no times."""
    plan = closed_plan(PROMPTS, 3, max_tokens=9)

    assert [request.prompt.category for request in plan] == ["chat", "code", "chat"]
    assert {request.at_s for request in plan} == {None}


def test_an_open_loop_has_the_times_of_the_process():
    """In order, one per request."""
    plan = open_plan(PROMPTS, 5, max_tokens=9, rate_per_s=2.0, seed=3)

    assert [request.at_s for request in plan] == poisson_arrivals(2.0, 5, seed=3)


def test_a_trace_is_read_in_time_order_with_its_lengths(tmp_path):
    """Times, output limits and prompts are those of the file; what it leaves out is filled in."""
    path = tmp_path / "trace.jsonl"
    path.write_text(
        '{"at_s": 2, "prompt_tokens": 130}\n\n{"at_s": 0.5, "prompt": "own", "category": "x", "max_tokens": 7}\n'
    )
    first, second = trace_plan(read_trace(path), PROMPTS, max_tokens=99, seed=0)

    assert (first.at_s, first.prompt, first.max_tokens) == (0.5, BenchPrompt("x", "own"), 7)
    assert (second.at_s, second.max_tokens, second.prompt.category) == (2.0, 99, "trace")
    assert len(second.prompt.prompt.split()) == 100


SENSELESS = ('{"at_s": -1}', '{"at_s": 1, "max_tokens": 0}', '{"at_s": 1, "prompt_tokens": "many"}', "[1]")
MALFORMED = ('{"prompt": "no time"}', '{"at_s": 1, "colour": 2}', "{", '{"at_s": "soon"}')


@pytest.mark.parametrize("line", [*MALFORMED, *SENSELESS])
def test_a_bad_line_of_a_trace_is_named(tmp_path, line):
    """Number and file."""
    path = tmp_path / "trace.jsonl"
    path.write_text('{"at_s": 1}\n' + line + "\n")

    with pytest.raises(ConfigError, match="Line 2"):
        read_trace(path)
