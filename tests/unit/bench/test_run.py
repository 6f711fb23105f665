"""Whole runs on a scripted endpoint: what is asked, in which order, and what comes out."""

import json

import pytest

from paceline.bench.load import TraceEntry
from paceline.bench.measure import Slo
from paceline.bench.plot import draw
from paceline.bench.prompts import BenchPrompt
from paceline.bench.report import to_json, to_markdown
from paceline.bench.run import RunSetup, check_setup, run_benchmark
from paceline.bench.variants import Variant
from paceline.errors import ConfigError, OverloadedError
from scripted_endpoint import ScriptedEndpoint

PROMPTS = (BenchPrompt("chat", "hello"), BenchPrompt("code", "def"))
SIDES = (Variant("a", speculation="off"), Variant("b", speculation="on"))
LOOP = "la " * 12


async def test_b_is_measured_against_a_in_alternating_blocks():
    """Each side is first in turn, and the warm-up is neither counted nor compared."""
    endpoint = ScriptedEndpoint(lambda _: 0.0)
    result = await run_benchmark(endpoint, RunSetup(PROMPTS, SIDES, warmup=1))
    order = [question.variant.name for question in endpoint.asked]

    assert order[:2] == ["a", "b"]  # warm-up
    blocks = [order[2 + 4 * block : 6 + 4 * block] for block in range(5)]
    assert [block[0] for block in blocks] in (list("ababa"), list("babab"))
    assert all(block[0] == block[1] != block[2] == block[3] for block in blocks)
    assert len(result.data["comparisons"]["b"]["block_ratios"]) == 5
    assert {side["load"]["requests"] for side in result.data["variants"].values()} == {10}


async def test_both_sides_answer_the_same_questions():
    """Same prompts, seeds and limits in each block; seeds differ between blocks, cache salts everywhere."""
    endpoint = ScriptedEndpoint(lambda _: 0.0)
    await run_benchmark(endpoint, RunSetup(PROMPTS, SIDES, warmup=0))
    asked = {name: [q for q in endpoint.asked if q.variant.name == name] for name in "ab"}

    assert [(q.prompt, q.seed, q.max_tokens) for q in asked["a"]] == [
        (q.prompt, q.seed, q.max_tokens) for q in asked["b"]
    ]
    assert len({q.seed for q in asked["a"]}) == 10
    assert len({q.cache_salt for q in endpoint.asked}) == 10


async def test_looping_answers_are_reported_apart():
    """They are in no headline and no category, and the load table still counts them."""
    endpoint = ScriptedEndpoint(lambda _: 0.0, text=LOOP)
    result = await run_benchmark(endpoint, RunSetup(PROMPTS, SIDES[:1], blocks=2, warmup=0))
    side = result.data["variants"]["a"]

    assert side["speed"]["headline"]["answers"] == 0
    assert "chat" not in side["speed"]
    assert side["speed"]["looping"]["answers"] == side["load"]["completed"] == 4


async def test_a_comparison_without_answers_says_why_and_keeps_the_rest():
    """Minutes of measuring are not thrown away."""
    endpoint = ScriptedEndpoint(lambda _: 0.0, text=LOOP)
    result = await run_benchmark(endpoint, RunSetup(PROMPTS, SIDES, warmup=0))

    assert result.data["comparisons"] == {"b": None}
    assert "no tokens" in to_markdown(result)


async def test_failures_are_shown():
    """By reason, in table and data."""
    endpoint = ScriptedEndpoint(lambda _: 0.0)
    endpoint.fail = lambda question: OverloadedError("the queue", 1.0) if question.seed % 2 else None
    result = await run_benchmark(endpoint, RunSetup(PROMPTS, SIDES[:1], blocks=1, warmup=1))

    assert result.data["variants"]["a"]["load"]["errors"] == {"OVERLOADED": 1}
    assert "1 OVERLOADED" in to_markdown(result)


async def test_a_server_that_refuses_everything_ends_the_run_in_the_warm_up():
    """With its own words, before minutes are spent."""
    endpoint = ScriptedEndpoint(lambda _: 0.0)
    endpoint.fail = lambda _: OverloadedError("the queue", 1.0)

    with pytest.raises(ConfigError, match="queue is full"):
        await run_benchmark(endpoint, RunSetup(PROMPTS, SIDES[:1]))


@pytest.mark.parametrize(
    "load", [{"rate_per_s": 500.0}, {"trace": (TraceEntry(0.0, "x"), TraceEntry(0.004, "x", "hi", max_tokens=5))}]
)
async def test_open_loops_run_on_their_schedule(load):
    """Goodput and lag are those of scheduled arrivals."""
    endpoint = ScriptedEndpoint(lambda _: 0.0)
    setup = RunSetup(PROMPTS, SIDES[:1], blocks=2, warmup=0, slo=Slo(5.0, 5.0), **load)
    result = await run_benchmark(endpoint, setup)
    figures = result.data["variants"]["a"]["load"]

    assert figures["requests"] == figures["completed"] == 4
    assert figures["goodput_per_s"] == pytest.approx(figures["requests_per_s"])
    assert figures["lag_s"]["count"] == 4


async def test_a_result_can_be_written_in_every_form(tmp_path):
    """JSON reads back with provenance and every request; Markdown ends in the provenance; the picture is a PNG."""
    endpoint = ScriptedEndpoint(lambda _: 0.001)
    result = await run_benchmark(endpoint, RunSetup(PROMPTS, SIDES, warmup=0))
    body = json.loads(to_json(result))
    draw(result, tmp_path / "run.png")

    assert body["provenance"]["config"] == {"endpoint": "scripted"}
    assert len(body["data"]["variants"]["b"]["requests"]) == 10
    assert "## Provenance" in to_markdown(result)
    assert (tmp_path / "run.png").read_bytes().startswith(b"\x89PNG")  # a small file


async def test_the_load_of_the_machine_is_noted_before_the_warm_up(monkeypatch):
    """The warm-up's own load would make every quiet machine look busy."""
    endpoint = ScriptedEndpoint(lambda _: 0.0)
    monkeypatch.setattr("os.getloadavg", lambda: (float(len(endpoint.asked)), 0.0, 0.0))
    result = await run_benchmark(endpoint, RunSetup(PROMPTS, SIDES[:1], blocks=1))

    assert result.provenance.machine["load_before"] == 0.0


@pytest.mark.parametrize(
    "setup",
    [
        RunSetup(PROMPTS, SIDES, blocks=4),
        RunSetup((), SIDES),
        RunSetup(PROMPTS, SIDES[:1], rate_per_s=1.0, trace=(TraceEntry(0.0),)),
        RunSetup(PROMPTS, SIDES[:1], rate_per_s=0.0),
    ],
)
def test_runs_that_could_give_no_result_are_refused(setup):
    """Too few blocks to compare, no prompts, two schedules, a schedule without end."""
    with pytest.raises(ConfigError):
        check_setup(setup)
