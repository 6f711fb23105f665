"""Curves over the data."""

import pytest

from paceline.bench.records import DraftCounts, Recording, RoundCounts
from paceline.training.acceptance_figures import drafted_answer
from paceline.training.evaluate import Cell, CellKey
from paceline.training.record import TrainingRecord
from paceline.training.scaling import scaling_table, trend


def cell(group, accepted, temperature=0.0):
    """A cell whose first position is accepted in ``accepted`` of 10 rounds."""
    rounds = tuple(RoundCounts(1, int(index < accepted), 1, 1) for index in range(10))
    recording = Recording(
        (), "fine", 1, 10 + accepted, exact_counts=True, drafting=DraftCounts(10, 10, accepted, rounds)
    )
    return Cell(CellKey("p", group, "5", temperature), (drafted_answer(recording, prompt=0, category="chat"),), ())


def record(tokens, method="eagle"):
    return TrainingRecord(method, "m", ("c",), 0, (), 1, tokens, tokens, 1.0, 1, 10)


def test_a_line_is_found_again():
    """Points on a line lie 0 off it, and the line goes on."""
    line = trend([(10**3, 0.1), (10**4, 0.3), (10**5, 0.5)])

    assert (line.slope, line.at(10**6)) == pytest.approx((0.2, 0.7))
    assert line.residual == pytest.approx(0, abs=1e-9)


def test_groups_of_one_method_make_a_curve():
    """In the order of their data, at the first temperature; groups without a record are in none."""
    cells = [cell("big", 5), cell("small", 1), cell("middle", 3), cell("ngram", 9), cell("big", 0, temperature=1.0)]
    records = {"big": record(10**5), "small": record(10**3), "middle": record(10**4)}

    table = scaling_table(cells, records)

    assert [row[0] for row in table.rows] == ["eagle: small", "eagle: middle", "eagle: big"]
    assert [row[2] for row in table.rows] == ["0.100", "0.300", "0.500"]
    assert "0.200 per tenfold data" in table.notes[0]
    assert "10 times the data would give 0.700" in table.notes[0]


def test_two_amounts_of_data_make_no_curve():
    """A line through two points fits whatever they are."""
    cells = [cell("a", 1), cell("b", 2), cell("c", 3)]

    assert scaling_table(cells, {"a": record(10), "b": record(100), "c": record(100)}) is None
    assert scaling_table(cells, {"a": record(10), "b": record(100), "c": record(1000, "mtp")}) is None
    assert scaling_table([], {}) is None
