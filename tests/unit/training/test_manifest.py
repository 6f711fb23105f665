"""A manifest proves what is not in a packed file."""

import hashlib

import pytest

from paceline.errors import ConfigError
from paceline.text.chat import ChatMessage
from paceline.training.corpus import Dialogue, UserTurn
from paceline.training.exclusion import Exclusion
from paceline.training.manifest import (
    make_manifest,
    manifest_path,
    read_manifest,
    turn_hash,
    without_excluded,
    write_manifest,
)
from tiny_tokenizers import text_tokenizer

TOKENIZER = text_tokenizer("byte_level")
USER_TURN = UserTurn(TOKENIZER)


def dialogue(question):
    return Dialogue(TOKENIZER.render_chat([ChatMessage("user", question)]), (7, 8, 2), 0.0, "a.jsonl")


def manifest(*questions):
    return make_manifest(
        [dialogue(question) for question in questions], b"packed", model="m", vocabulary="v", user_turn=USER_TURN
    )


def test_a_question_is_found_however_it_is_written():
    """By a hash of its words; a question that was not asked is not there."""
    made = manifest("What is a fox?", "Who runs?", "who runs")

    assert made.holds("what is  a FOX")
    assert not made.holds("What is a dog?")
    assert len(made.turns) == 2
    assert made.sha256 == hashlib.sha256(b"packed").hexdigest()


def test_a_manifest_comes_back_from_its_file(tmp_path):
    """It lies beside the packed file."""
    path = manifest_path(tmp_path / "data.xz")
    write_manifest(manifest("one"), path)

    assert path.name == "data.xz.manifest.json"
    assert read_manifest(path) == manifest("one")


@pytest.mark.parametrize("content", ["{}", "[]", "junk", '{"format": "paceline-manifest-1"}'])
def test_what_is_no_manifest_is_refused(tmp_path, content):
    """With the name of the file."""
    path = tmp_path / "m.json"
    path.write_text(content)

    with pytest.raises(ConfigError, match=r"m\.json"):
        read_manifest(path)


def test_excluded_questions_are_left_out():
    """Also where they stand inside a longer one."""
    kept = without_excluded(
        [dialogue("Say: what is the name of the fox?"), dialogue("Who runs?")],
        USER_TURN,
        Exclusion(["What is the name of the fox?"]),
    )

    assert kept == [dialogue("Who runs?")]


def test_the_hash_is_that_of_the_words():
    """Anybody can compute it: SHA-256 of the lower-case words with one space between."""
    assert turn_hash("Hello,  World!") == hashlib.sha256(b"hello world").hexdigest()[:16]
