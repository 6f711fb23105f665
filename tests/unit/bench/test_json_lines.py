"""Files with one JSON object a line."""

import pytest

from paceline.bench.json_lines import read_json_lines
from paceline.errors import ConfigError


def test_blank_lines_carry_nothing(tmp_path):
    """Objects are in the order of the file."""
    path = tmp_path / "x.jsonl"
    path.write_text('{"n": 1}\n\n  \n{"n": 2}\n')

    assert read_json_lines(path, lambda body: body["n"], what="number") == [1, 2]


def test_a_file_that_cannot_be_read_is_named(tmp_path):
    """Missing, and not text."""
    binary = tmp_path / "binary"
    binary.write_bytes(b"\xff\xfe\xfd")
    for path in (tmp_path / "missing", binary):
        with pytest.raises(ConfigError, match=path.name):
            read_json_lines(path, lambda body: body, what="prompt")


def test_a_bad_line_is_named_with_what_it_should_have_been(tmp_path):
    """Counted from 1, blank lines included."""
    path = tmp_path / "x.jsonl"
    path.write_text('\n{"n": 1}\n{')

    with pytest.raises(ConfigError, match=r"Line 3 of .*x\.jsonl is no prompt"):
        read_json_lines(path, lambda body: body, what="prompt")
