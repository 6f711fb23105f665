"""Records and cards of trained drafters."""

import dataclasses
import hashlib
import json

import pytest

from paceline.errors import ConfigError
from paceline.training.card import write_card
from paceline.training.corpus import Dialogue
from paceline.training.record import data_files, read_record, record_of_model, training_record, write_record


@pytest.fixture
def record(tmp_path):
    data = tmp_path / "data.xz"
    data.write_bytes(b"ids")
    return training_record(
        "eagle",
        target="smollm2-135m",
        command="paceline train eagle data.xz -o eagle",
        data=data_files([data]),
        dialogues=[Dialogue((1,), (2, 3), 0.0, "a")],
        token_passes=1500,
        seconds=1800.0,
        parameters=5,
        target_parameters=100,
        seed=3,
        options={"unroll": 2},
        measured={"simulated_tau": 2.25},
    )


def evaluation(tmp_path, record, group="eagle"):
    figures = {"answers": 30, "first": [0.5, 0.4, 0.6], "positions": [0.5, 0.25], "tau": [1.75, 1.5, 2.0]}
    cell = {"prompts": "prompts", "group": group, "budget": "5", "temperature": 0.0, "figures": figures}
    body = {
        "kind": "acceptance",
        "provenance": {"command": "paceline train evaluate x.yaml", "source": "abc"},
        "data": {"records": {group: dataclasses.asdict(record)}, "cells": [cell]},
    }
    path = tmp_path / "evaluation.json"
    path.write_text(json.dumps(body))
    return path


def test_a_record_comes_back_and_names_its_data_by_content(tmp_path, record):
    """Whoever has a file can tell whether it is the one."""
    write_record(record, tmp_path)

    assert read_record(tmp_path) == record
    assert record_of_model(str(tmp_path)) == record
    assert record.data[0].sha256 == hashlib.sha256(b"ids").hexdigest()
    assert (record.answer_tokens, record.share) == (2, 0.05)


def test_a_drafter_without_a_record_has_none(tmp_path):
    """n-gram groups, models of the hub, folders of others."""
    assert record_of_model(None) is None
    assert record_of_model(str(tmp_path)) is None
    assert record_of_model("somebody/some-model") is None


@pytest.mark.parametrize("content", ["{}", "[]", "junk", '{"format": "paceline-training-1"}'])
def test_what_is_no_record_is_refused(tmp_path, content):
    """With the name of the file."""
    (tmp_path / "training.json").write_text(content)

    with pytest.raises(ConfigError, match=r"training\.json"):
        read_record(tmp_path)


def test_a_card_tells_how_the_drafter_came_about_and_what_it_is_worth(tmp_path, record):
    """Data, command, seed, time, share of parameters, acceptance with intervals."""
    write_card(tmp_path, record, evaluation(tmp_path, record), group="eagle")
    card = (tmp_path / "README.md").read_text()

    for fact in (
        "# eagle for smollm2-135m",
        "paceline train eagle data.xz -o eagle",
        record.data[0].sha256,
        "5.0% of the target's 100",
        "1,500 token passes in 0.50 hours; seed 3",
        "- unroll: 2.",
        "simulated tau: 2.25",
        "| 5, 0, prompts | 30 | 0.500 [0.400, 0.600] | 0.50 0.25 | 1.750 [1.500, 2.000] |",
        "paceline train evaluate x.yaml",
    ):
        assert fact in card


def test_an_evaluation_of_another_drafter_is_refused(tmp_path, record):
    """Another group, another training, another kind of file."""
    path = evaluation(tmp_path, record)

    with pytest.raises(ConfigError, match="no drafter group 'mtp'"):
        write_card(tmp_path, record, path, group="mtp")
    with pytest.raises(ConfigError, match="another training"):
        write_card(tmp_path, dataclasses.replace(record, seconds=1.0), path, group="eagle")
    path.write_text('{"kind": "run", "data": {}}')
    with pytest.raises(ConfigError, match="another kind"):
        write_card(tmp_path, record, path, group="eagle")
