"""Dialogues from text, from generated answers, and packed."""

import json

import pytest

from paceline.errors import ConfigError
from paceline.text.tokenizer import TextTokenizer
from paceline.training.corpus import CorpusSize, Dialogue, UserTurn, first_tokens, held_out, loops, read_corpus
from paceline.training.packed import pack, unpack
from tiny_tokenizers import byte_level, text_tokenizer

END = 2  # of the tiny tokenizers


@pytest.fixture(scope="module")
def tokenizer():
    return text_tokenizer("byte_level")


def text_line(user="Hello?", assistant="Hello world", finish="stop", temperature=0.7):
    return json.dumps({"user": user, "assistant": assistant, "temperature": temperature, "finish": finish}) + "\n"


def generated_line(index=0, prompt=(1, 5, 6), answer=(7, 8, 2)):
    body = {"index": index, "prompt_ids": prompt, "answer_ids": answer, "temperature": 1.0, "finish": "stop"}
    return json.dumps(body) + "\n"


def test_text_goes_through_the_chat_template_and_ends_where_the_model_ended(tmp_path, tokenizer):
    """The prompt is what will be served; only an answer that stopped by itself has an end token."""
    path = tmp_path / "text.jsonl"
    path.write_text(text_line() + text_line(finish="length"))

    stopped, cut = read_corpus([path], tokenizer)

    assert tokenizer.decode(stopped.prompt_ids, skip_special=False).endswith("<user>Hello?</s><assistant>")
    assert stopped.answer_ids == (*cut.answer_ids, END)
    assert tokenizer.decode(cut.answer_ids) == "Hello world"
    assert (stopped.temperature, stopped.source) == (0.7, "text.jsonl")


def test_generated_answers_are_taken_as_they_are(tmp_path, tokenizer):
    """No text in between: ids that the tokenizer would not give for the text stay."""
    path = tmp_path / "answers.jsonl"
    path.write_text(generated_line())

    assert read_corpus([path], tokenizer) == [Dialogue((1, 5, 6), (7, 8, 2), 1.0, "answers.jsonl")]


def test_a_line_that_is_being_written_is_left_out(tmp_path, tokenizer):
    """Another process may be writing the file; a torn line in the middle is damage."""
    path = tmp_path / "answers.jsonl"
    path.write_text(generated_line() + generated_line(1)[:20])
    torn = tmp_path / "torn.jsonl"
    torn.write_text(generated_line()[:20] + "\n" + generated_line())

    assert len(read_corpus([path], tokenizer)) == 1
    with pytest.raises(ConfigError, match=r"Line 1 of .*torn.jsonl is no JSON"):
        read_corpus([torn], tokenizer)


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ('{"prompt_ids": [1], "temperature": 0}', "it lacks 'answer_ids'"),
        ('{"prompt_ids": [1], "answer_ids": ["a"], "temperature": 0}', "'answer_ids' is no list of token ids"),
        ('{"prompt_ids": [1], "answer_ids": [99999], "temperature": 0}', "an id that the target's vocabulary lacks"),
        ('{"question": "?"}', "it lacks 'user'"),
        ("[1]", "it is no object"),
    ],
)
def test_a_line_that_is_no_dialogue_is_named(tmp_path, tokenizer, line, message):
    """File, line, and what is wrong with it."""
    path = tmp_path / "bad.jsonl"
    path.write_text(generated_line() + line + "\n")

    with pytest.raises(ConfigError, match=r"Line 2 of .*bad.jsonl") as caught:
        read_corpus([path], tokenizer)

    assert message in str(caught.value)


def test_looping_answers_and_empty_ones_can_be_left_out(tmp_path, tokenizer):
    """Any eight words three times are a loop."""
    path = tmp_path / "text.jsonl"
    loop = "one two three four five six seven eight " * 3
    path.write_text(text_line(assistant=loop) + text_line() + text_line(assistant="", finish="length"))

    looping, other = read_corpus([path], tokenizer)

    assert (loops(looping, tokenizer), loops(other, tokenizer)) == (True, False)
    assert read_corpus([path], tokenizer, drop_loops=True) == [other]


def test_nothing_to_train_on_is_said(tmp_path, tokenizer):
    """An empty file and a missing one are mistakes."""
    path = tmp_path / "empty.jsonl"
    path.write_text("\n")

    with pytest.raises(ConfigError, match="no dialogue to train on"):
        read_corpus([path], tokenizer)
    with pytest.raises(ConfigError, match="cannot be read"):
        read_corpus([tmp_path / "missing.jsonl"], tokenizer)


def test_packed_dialogues_come_back_the_same(tmp_path, tokenizer):
    """Ids, lengths, temperatures and sources, whatever the file was called; the same dialogues give the same bytes."""
    dialogues = [
        Dialogue((1, 2, 65535), (7,), 0.7, "b.jsonl"),
        Dialogue((), (0, 1), 0.0, "a.jsonl"),
        Dialogue((5,), (), 1 / 3, "b.jsonl"),
    ]
    path = tmp_path / "packed.xz"
    path.write_bytes(pack(dialogues, tokenizer.vocabulary))

    assert unpack(path, tokenizer.vocabulary) == dialogues
    assert read_corpus([path], tokenizer) == dialogues[:2]
    assert pack(dialogues, tokenizer.vocabulary) == path.read_bytes()


def test_packed_ids_of_another_vocabulary_are_refused(tmp_path, tokenizer):
    """They would be other words."""
    other = TextTokenizer(byte_level(300)).vocabulary
    path = tmp_path / "packed.xz"
    path.write_bytes(pack([Dialogue((1,), (2,), 0.0, "a")], other))

    with pytest.raises(ConfigError, match="another vocabulary"):
        unpack(path, tokenizer.vocabulary)


@pytest.mark.parametrize("damage", [lambda content: content[:-8], lambda content: b"junk", lambda content: b""])
def test_a_damaged_packed_file_is_refused(tmp_path, tokenizer, damage):
    """Cut off or something else."""
    path = tmp_path / "packed.xz"
    path.write_bytes(damage(pack([Dialogue((1,), (2,), 0.0, "a")], tokenizer.vocabulary)))

    with pytest.raises(ConfigError, match=r"packed.xz"):
        unpack(path, tokenizer.vocabulary)


def test_a_packed_file_has_a_limit(tokenizer):
    """The repository carries at most 10 MB."""
    with pytest.raises(ConfigError, match="at most 50 are allowed"):
        pack([Dialogue((1,), (2,), 0.0, "a")], tokenizer.vocabulary, most_bytes=50)


def test_the_questions_held_out_depend_on_the_question_alone():
    """More data, in another order, moves no question from one side to the other."""
    dialogues = [Dialogue((1, index, 7 * index % 11), (2,), 0.0, "a") for index in range(2000)]
    trained, checked = held_out(dialogues, every=20)
    again, checked_again = held_out(dialogues[::-2], every=20)

    assert 50 < len(checked) < 200
    assert not set(trained) & set(checked)
    assert set(again) <= set(trained)
    assert set(checked_again) <= set(checked)


def test_a_smaller_part_of_the_data_is_always_in_a_larger_one():
    """Otherwise a curve over the data would compare different data."""
    dialogues = [Dialogue((1, index), (2,) * 10, 0.0, "a") for index in range(100)]
    small, large = first_tokens(dialogues, 200), first_tokens(dialogues[::-1], 500)

    assert (CorpusSize.of(small).answer_tokens, CorpusSize.of(large).answer_tokens) == (200, 500)
    assert set(small) <= set(large)
    assert first_tokens(dialogues, 10**6) != []


def test_the_users_words_are_found_in_a_prompt(tmp_path, tokenizer):
    """The template around them goes, whatever stands in them."""
    path = tmp_path / "text.jsonl"
    path.write_text(text_line(user="What is <this>?"))

    assert UserTurn(tokenizer).of(read_corpus([path], tokenizer)[0]) == "What is <this>?"
