"""Reduced draft vocabularies, chosen by what the target writes."""

import pytest

from paceline.errors import ConfigError
from paceline.training.corpus import Dialogue
from paceline.training.draft_vocabulary import choose_vocabulary, coverage, indispensable
from tiny_tokenizers import text_tokenizer

DIALOGUES = [Dialogue((9, 9, 9), (5, 5, 4), 0.0, "a"), Dialogue((9,), (3, 4, 7), 0.0, "a")]


def test_the_most_frequent_tokens_of_answers_are_kept():
    """Prompts do not count; equals go by id; what must be in is in."""
    assert choose_vocabulary(DIALOGUES, 2) == (4, 5)
    assert choose_vocabulary(DIALOGUES, 3) == (3, 4, 5)
    assert choose_vocabulary(DIALOGUES, 2, always=[1]) == (1, 4)
    assert choose_vocabulary(DIALOGUES, 100) == (3, 4, 5, 7)


def test_a_vocabulary_too_small_for_what_must_be_in_is_refused():
    """Rather than losing the end token."""
    with pytest.raises(ConfigError, match="2 tokens must be in"):
        choose_vocabulary(DIALOGUES, 1, always=[1, 2])


def test_coverage_is_a_share_of_the_answers_tokens():
    """The bound of any acceptance."""
    assert coverage(DIALOGUES, (4, 5)) == pytest.approx(4 / 6)
    assert coverage([], (1,)) == 0


def test_ends_digits_and_signs_are_always_in():
    """An answer could otherwise never be drafted to its end."""
    tokenizer = text_tokenizer("byte_level")
    kept = indispensable(tokenizer)

    assert set(tokenizer.eos_token_ids) <= set(kept)
    assert {tokenizer.encode_fragment(digit)[0] for digit in "0123456789\n"} <= set(kept)
