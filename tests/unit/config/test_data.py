"""Data files are found through one variable."""

import os
from pathlib import Path

import pytest

from paceline.config.data import data_file
from paceline.errors import ConfigError


def test_a_file_is_found_in_the_named_folder(tmp_path, monkeypatch):
    """The variable names the folder, and nothing else is searched."""
    (tmp_path / "words.jsonl").write_text("{}")
    monkeypatch.setenv("PACELINE_DATA", str(tmp_path))

    assert data_file("words.jsonl") == tmp_path / "words.jsonl"


def test_a_missing_folder_or_file_is_said(tmp_path, monkeypatch):
    """The error names the file and the variable to set."""
    monkeypatch.setenv("PACELINE_DATA", str(tmp_path))
    with pytest.raises(ConfigError, match=r"'words\.jsonl' is not in"):
        data_file("words.jsonl")
    monkeypatch.delenv("PACELINE_DATA")
    with pytest.raises(ConfigError, match="set PACELINE_DATA"):
        data_file("words.jsonl")


@pytest.mark.skipif(not os.environ.get("PACELINE_DATA"), reason="PACELINE_DATA is not set; the Makefile sets it")
def test_the_makefile_names_a_folder_with_the_data():
    """Under make the default folder, where it exists, holds the evaluation set."""
    if not Path(os.environ["PACELINE_DATA"]).is_dir():
        pytest.skip("the data folder is not on this machine")

    assert data_file("spec-bench.jsonl").stat().st_size > 0
