"""What drafters are measured with is not trained on."""

import pytest

from paceline.errors import ConfigError
from paceline.training.exclusion import Exclusion, excluded_texts, normalised


def test_case_punctuation_and_spaces_make_no_difference():
    """A prompt is found however it is written."""
    exclusion = Exclusion(["What is the capital of France, and why?"])

    assert exclusion.matches("what is  the capital of FRANCE and why")
    assert not exclusion.matches("What is the capital of Spain, and why?")


def test_a_text_that_contains_an_excluded_one_is_excluded():
    """Words before and after hide nothing; a very short text stands in many others and counts only as a whole."""
    exclusion = Exclusion(["Explain how a bicycle stays upright.", "Hi"])

    assert exclusion.matches("Please: explain how a bicycle stays upright. In verse!")
    assert exclusion.matches("hi!")
    assert not exclusion.matches("Hi, what is a bicycle?")


def test_nothing_excludes_nothing():
    """Empty texts are no texts."""
    exclusion = Exclusion(["", " ?! "])

    assert (len(exclusion), exclusion.matches("anything"), exclusion.matches("")) == (0, False, False)


def test_all_turns_of_all_prompts_are_excluded(tmp_path):
    """Both forms of prompt files."""
    path = tmp_path / "prompts.jsonl"
    path.write_text('{"category": "a", "prompt": "one"}\n{"turns": ["two", "three"]}\n')

    assert excluded_texts(path) == ["one", "two", "three"]


def test_a_file_without_prompts_is_refused(tmp_path):
    """Else nothing would be excluded, and nobody would know."""
    path = tmp_path / "prompts.jsonl"
    path.write_text('{"question": "one"}\n')

    with pytest.raises(ConfigError, match=r"Line 1 of .* neither 'prompt' nor 'turns'"):
        excluded_texts(path)


def test_words_keep_letters_of_every_script():
    """Only what is no word goes."""
    assert normalised("Ünïcode, 안녕! x_1") == "ünïcode 안녕 x_1"
