"""Where questions come from."""

import pytest

from paceline.errors import ConfigError
from paceline.text.tokenizer import TextTokenizer
from paceline.training.exclusion import Exclusion
from paceline.training.user_turns import FileTurns, OwnTurns
from tiny_tokenizers import byte_level, text_tokenizer

NOTHING = Exclusion([])


async def test_questions_of_a_file_come_round_again(tmp_path):
    """Both keys; question i is asked by dialogue i, i + n, ..."""
    path = tmp_path / "q.jsonl"
    path.write_text('{"user": "one"}\n{"prompt": "two"}\n')
    turns = FileTurns(path, NOTHING)

    assert [await turns.turn(index) for index in range(4)] == ["one", "two", "one", "two"]


async def test_excluded_questions_of_a_file_are_never_asked(tmp_path):
    """And a file of nothing else is a mistake."""
    path = tmp_path / "q.jsonl"
    path.write_text('{"user": "one"}\n{"user": "two"}\n')

    assert await FileTurns(path, Exclusion(["One!"])).turn(0) == "two"
    with pytest.raises(ConfigError, match="no question that may be trained on"):
        FileTurns(path, Exclusion(["one", "two"]))


def test_a_line_without_a_question_is_named(tmp_path):
    """Its number, and the keys that were looked for."""
    path = tmp_path / "q.jsonl"
    path.write_text('{"user": "one"}\n{"text": "two"}\n')

    with pytest.raises(ConfigError, match=r"Line 2 of .* none of the keys user, prompt"):
        FileTurns(path, NOTHING)


async def test_the_model_continues_its_template_as_the_user():
    """It sees what stands before the user's first word, and what it writes is cleaned of space."""
    tokenizer = text_tokenizer("byte_level")
    seen = []

    async def complete(prompt_ids, index):
        seen.append((tokenizer.decode(prompt_ids, skip_special=False), index))
        return tokenizer.encode_fragment("  Why? \n")

    assert await OwnTurns(tokenizer, complete, NOTHING).turn(3) == "Why?"
    assert seen == [("<s><user>", 3)]


async def test_silence_and_excluded_questions_are_no_turns():
    """The dialogue has none, and the next index is tried."""
    tokenizer = text_tokenizer("byte_level")

    async def complete(_prompt_ids, index):
        return tokenizer.encode_fragment(["", "Why?"][index])

    turns = OwnTurns(tokenizer, complete, Exclusion(["why"]))

    assert [await turns.turn(index) for index in range(2)] == [None, None]


def test_a_template_that_changes_the_users_words_is_refused():
    """There would be no place to let the model go on from."""
    tokenizer = TextTokenizer(byte_level(chat_template="{{ messages[0].content | upper }}"))

    with pytest.raises(ConfigError, match="--prompts"):
        OwnTurns(tokenizer, None, NOTHING)
