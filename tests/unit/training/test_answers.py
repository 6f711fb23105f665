"""The file of answers: it grows, and loses at most the line that was being written."""

import pytest

from paceline.errors import ConfigError
from paceline.training.answers import Answer, AnswerFile


def answer(index):
    return Answer(index, (1, 2), (3, index), 1.0, "stop")


def test_answers_come_back_as_they_were(tmp_path):
    """In order, ids as tuples."""
    file = AnswerFile(tmp_path / "a.jsonl")
    file.append(answer(0))
    file.append(answer(7))

    assert list(AnswerFile(tmp_path / "a.jsonl")) == [answer(0), answer(7)]


def test_a_torn_last_line_is_cut_off_before_anything_is_appended(tmp_path):
    """What was being written when the machine stopped is made again; what comes next begins a line of its own."""
    path = tmp_path / "a.jsonl"
    AnswerFile(path).append(answer(0))
    with path.open("a") as file:
        file.write('{"index":1,"prompt_ids":[1')

    again = AnswerFile(path)
    again.append(answer(2))

    assert list(again) == [answer(0), answer(2)]


def test_a_file_that_is_not_there_has_no_answers(tmp_path):
    """The first run begins with nothing."""
    assert list(AnswerFile(tmp_path / "none.jsonl")) == []


def test_a_line_that_is_no_answer_is_named(tmp_path):
    """A file of something else is not appended to in silence."""
    path = tmp_path / "a.jsonl"
    path.write_text('{"prompt": "?"}\n')

    with pytest.raises(ConfigError, match=r"Line 1 of .*a\.jsonl is no answer"):
        list(AnswerFile(path))
