"""Results are written with provenance or not at all."""

import sys
from dataclasses import replace

import pytest
from rich.console import Console

from paceline.bench.plot import draw
from paceline.bench.provenance import collect_provenance
from paceline.bench.report import Result, Table, show, to_json, to_markdown, write
from paceline.errors import ConfigError

TABLE = Table("Speed", ["what", "tokens/s"], [["a|b", "12.5"]], ["a note"])


def _result(**changes):
    provenance = collect_provenance(config={}, seed=3, argv=["paceline", "bench"])
    return Result("run", replace(provenance, **changes) if changes else provenance, [TABLE], {})


@pytest.mark.parametrize("suffix", [".json", ".md", ".png"])
def test_no_provenance_no_file(tmp_path, suffix):
    """In no form at all."""
    path = tmp_path / f"result{suffix}"
    with pytest.raises(ConfigError, match="no provenance"):
        write(Result("run", None, [TABLE], {}), path)

    assert not path.exists()


@pytest.mark.parametrize("missing", ["taken_at", "machine", "versions", "source", "command"])
def test_provenance_with_a_hole_is_none(missing):
    """The part that is missing is named."""
    empty = {} if missing in {"machine", "versions"} else ""
    with pytest.raises(ConfigError, match=missing):
        to_json(_result(**{missing: empty}))
    with pytest.raises(ConfigError, match=missing):
        to_markdown(_result(**{missing: empty}))


def test_markdown_has_tables_notes_and_provenance():
    """A bar inside a cell does not break the table."""
    text = to_markdown(_result())

    assert "| a\\|b | 12.5 |" in text
    assert "- a note" in text
    assert "- seed: 3" in text
    assert "- command: `paceline bench`" in text


def test_another_suffix_is_refused(tmp_path):
    """The known ones are listed."""
    with pytest.raises(ConfigError, match=r"\.json, \.md or \.png"):
        write(_result(), tmp_path / "result.csv")


def test_a_result_without_a_picture_says_so(tmp_path):
    """Only runs are drawn."""
    with pytest.raises(ConfigError, match="no picture"):
        draw(replace(_result(), kind="pass"), tmp_path / "x.png")


def test_without_matplotlib_the_extra_is_named(tmp_path, monkeypatch):
    """The other forms still work."""
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    with pytest.raises(ConfigError, match=r"paceline\[bench\]"):
        draw(_result(), tmp_path / "x.png")


def test_the_terminal_shows_tables_and_where_they_are_from():
    """Notes and commit included."""
    console = Console(width=120, record=True, file=open("/dev/null", "w"))  # noqa: SIM115, PTH123
    show(_result(), console)
    text = console.export_text()

    assert "12.5" in text
    assert "a note" in text
    assert "cores" in text
