"""Results of runs whose every answer is written down."""

import pytest

from paceline.bench.measure import Slo
from paceline.bench.provenance import collect_provenance
from paceline.bench.records import BlockRun
from paceline.bench.report import to_markdown
from paceline.bench.run_report import run_result
from paceline.bench.variants import Variant
from timelines import recording, sample

SIDES = (Variant("a"), Variant("b"))
LOOP = "la " * 12
TEN = [(0.5, 1), (1.0, 9)]


def _run(block, name, seconds, *, text="fine", category="chat"):
    """One request of ten tokens."""
    return BlockRun(block, name, [sample(0.0, seconds, recording(TEN, text=text), category=category)], seconds)


def _result(runs, sides=SIDES):
    provenance = collect_provenance(config={}, seed=0, argv=["paceline"])
    return run_result(sides, runs, slo=Slo(), provenance=provenance, setup={})


def _blocks(a_seconds, b_seconds, **b_options):
    return [run for n in range(5) for run in (_run(n, "a", a_seconds), _run(n, "b", b_seconds, **b_options))]


def test_the_ratio_is_that_of_the_speeds():
    """Ten tokens in one second over ten in two."""
    result = _result(_blocks(2.0, 1.0))

    assert result.data["comparisons"]["b"]["ratio"] == pytest.approx(2.0)
    assert result.data["variants"]["a"]["speed"]["headline"]["tokens_per_s"] == pytest.approx(5.0)
    assert result.data["variants"]["b"]["speed"]["chat"]["tokens_per_s"] == pytest.approx(10.0)


def test_each_other_side_is_compared_with_the_first():
    """Twice as fast and as fast as a; one row each."""
    runs = [_run(block, name, seconds) for block in range(5) for name, seconds in (("a", 2.0), ("b", 1.0), ("c", 2.0))]
    result = _result(runs, [*SIDES, Variant("c")])
    (table,) = (table for table in result.tables if table.title == "Comparison")

    assert {name: found["ratio"] for name, found in result.data["comparisons"].items()} == {
        "b": pytest.approx(2.0),
        "c": pytest.approx(1.0),
    }
    assert [row[0] for row in table.rows] == ["b over a", "c over a"]


def test_a_request_that_loops_on_one_side_is_left_out_on_both():
    """Else a side would be compared over easier questions: here the odd one out would make the ratio 1.5."""
    runs = []
    for block in range(5):
        one = [sample(0.0, 2.0, recording(TEN)), sample(2.0, 4.0, recording(TEN))]
        other = [sample(0.0, 1.0, recording(TEN)), sample(1.0, 2.5, recording(TEN, text=LOOP))]
        runs += [BlockRun(block, "a", one, 4.0), BlockRun(block, "b", other, 2.5)]

    assert _result(runs).data["comparisons"]["b"]["ratio"] == pytest.approx(2.0)


def test_a_request_that_failed_on_one_side_is_left_out_on_both():
    """Its time counts for nobody."""
    runs = []
    for block in range(5):
        one = [sample(0.0, 2.0, recording(TEN)), sample(2.0, 9.0, recording(TEN))]
        other = [sample(0.0, 1.0, recording(TEN)), sample(1.0, 2.0, error="OVERLOADED")]
        runs += [BlockRun(block, "a", one, 9.0), BlockRun(block, "b", other, 2.0)]
    result = _result(runs)

    assert result.data["comparisons"]["b"]["ratio"] == pytest.approx(2.0)
    assert result.data["variants"]["b"]["load"]["errors"] == {"OVERLOADED": 5}


def test_loops_stand_in_a_row_of_their_own():
    """With their speed, which is no part of the headline."""
    result = _result(_blocks(2.0, 1.0, text=LOOP))
    speed = result.data["variants"]["b"]["speed"]

    assert (speed["headline"]["answers"], speed["looping"]["answers"]) == (0, 5)
    assert speed["looping"]["tokens_per_s"] == pytest.approx(10.0)
    assert result.data["comparisons"] == {"b": None}
    assert "b: looping" in to_markdown(result)


def test_one_side_has_no_comparison():
    """And no table of one."""
    result = _result([_run(0, "a", 2.0)], SIDES[:1])

    assert result.data["comparisons"] == {}
    assert [table.title for table in result.tables] == ["Speed", "Latency", "Load"]


def test_estimated_counts_are_marked():
    """A reader must know which ITL is shared out."""
    run = BlockRun(0, "a", [sample(0.0, 2.0, recording(TEN, exact=False))], 2.0)

    assert "by characters" in to_markdown(_result([run], SIDES[:1]))
