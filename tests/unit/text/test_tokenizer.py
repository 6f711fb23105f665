"""Text to ids, chats to ids, and what identifies a vocabulary."""

from pathlib import Path

import pytest
from tokenizers import AddedToken

from paceline.errors import InvalidRequestError, ModelRefusedError
from paceline.text.chat import ChatMessage
from paceline.text.tokenizer import TextTokenizer
from paceline.text.vocabulary import identify_vocabulary
from tiny_tokenizers import KINDS, byte_level, text_tokenizer

kinds = pytest.mark.parametrize("kind", KINDS)
BOS, EOS = 1, 2


@kinds
def test_a_chat_has_exactly_one_begin_token(kind: str) -> None:
    """The template prints it, so the tokenizer does not add its own; a raw prompt gets the tokenizer's."""
    tokenizer = text_tokenizer(kind)
    chat = tokenizer.render_chat([ChatMessage("user", "hello")])
    assert chat.count(BOS) == 1
    assert chat[0] == BOS
    raw = tokenizer.encode("hello")
    assert raw.count(BOS) == 1
    assert BOS not in tokenizer.encode_fragment("hello")


def test_every_role_is_rendered_and_asks_for_an_answer() -> None:
    """System, user, assistant and tool messages come in order, with the call that a tool answers."""
    messages = [
        ChatMessage("system", "be kind"),
        ChatMessage("user", "add"),
        ChatMessage("assistant", "calling"),
        ChatMessage("tool", "42", tool_call_id="c1"),
    ]
    ids = text_tokenizer("byte_level").render_chat(messages)
    text = text_tokenizer("byte_level").decode(ids)
    assert text == "<system>be kind<user>add<assistant>calling<tool>42#c1<assistant>"


def test_a_template_that_objects_is_the_clients_fault() -> None:
    """What the template says reaches the client, as an invalid request."""
    with pytest.raises(InvalidRequestError, match="the assistant cannot begin") as raised:
        text_tokenizer("byte_level").render_chat([ChatMessage("assistant", "hi")])
    assert raised.value.param == "messages"


@pytest.mark.parametrize(("messages", "words"), [([], "at least one"), ([ChatMessage("robot", "x")], "robot")])
def test_chats_that_make_no_sense_are_refused(messages: list[ChatMessage], words: str) -> None:
    """No messages, and unknown roles."""
    with pytest.raises(InvalidRequestError, match=words):
        text_tokenizer("byte_level").render_chat(messages)


def test_without_a_template_the_way_out_is_named() -> None:
    """A base model says to use completions."""
    bare = TextTokenizer(byte_level(chat_template=None))
    assert not bare.has_chat_template
    with pytest.raises(InvalidRequestError, match="/v1/completions"):
        bare.render_chat([ChatMessage("user", "hello")])


@kinds
def test_decoding_undoes_encoding(kind: str) -> None:
    """Special tokens are hidden unless asked for, and spaces are not tidied."""
    tokenizer = text_tokenizer(kind)
    text = "hello , world  it 's"
    assert tokenizer.decode(tokenizer.encode(text)) == text
    assert tokenizer.decode(tokenizer.encode(text), skip_special=False).startswith("<s>")


def test_markers_of_the_chat_template_have_no_text() -> None:
    """Special tokens without a role of their own are hidden like the others; ordinary added tokens are not."""
    wrapped = byte_level(321)
    wrapped.add_tokens([AddedToken("<|turn|>", special=True)], special_tokens=True)
    wrapped.add_tokens([AddedToken("<think>", special=False)])
    tokenizer = TextTokenizer(wrapped)
    turn, think = wrapped.convert_tokens_to_ids(["<|turn|>", "<think>"])
    assert not tokenizer.has_text(turn)
    assert tokenizer.has_text(turn, skip_special=False)
    assert tokenizer.has_text(think)
    assert tokenizer.decode([turn, think]) == "<think>"


def test_two_swapped_tokens_change_the_fingerprint() -> None:
    """Equal size and equal strings are not enough: ids 17 and 42 swapped is another vocabulary."""
    tokens = {f"t{i}": i for i in range(64)}
    swapped = tokens | {"t17": 42, "t42": 17}
    special = {"eos": 2}
    one, other = (identify_vocabulary(t, special, vocab_size=64) for t in (tokens, swapped))
    assert one.fingerprint != other.fingerprint
    assert one == identify_vocabulary(dict(reversed(tokens.items())), special, vocab_size=64)
    assert one.fingerprint != identify_vocabulary(tokens, {"eos": 3}, vocab_size=64).fingerprint


def test_a_vocabulary_has_the_size_of_the_head() -> None:
    """Padding rows count in the size and not in the fingerprint."""
    plain, padded = TextTokenizer(byte_level()), TextTokenizer(byte_level(), vocab_size=512)
    assert plain.vocabulary.size == len(byte_level())
    assert padded.vocabulary.size == 512
    assert padded.vocabulary.fingerprint == plain.vocabulary.fingerprint
    assert padded.vocabulary.special_ids == (("bos", BOS), ("eos", EOS), ("unk", 0))


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        ({}, (2,)),
        ({"config.json": '{"eos_token_id": 7}'}, (2, 7)),
        ({"config.json": '{"eos_token_id": 7}', "generation_config.json": '{"eos_token_id": [9, 8]}'}, (2, 8, 9)),
        ({"generation_config.json": '{"eos_token_id": null}'}, (2,)),
    ],
)
def test_end_tokens_come_from_the_folder_and_the_tokenizer(
    tmp_path: Path, files: dict[str, str], expected: tuple[int, ...]
) -> None:
    """generation_config.json goes before config.json; the tokenizer's own end token always counts."""
    byte_level().save_pretrained(tmp_path)
    for name, content in files.items():
        (tmp_path / name).write_text(content)
    loaded = TextTokenizer.load(tmp_path)
    assert loaded.eos_token_ids == expected
    assert loaded.vocabulary == text_tokenizer("byte_level").vocabulary
    assert loaded.render_chat([ChatMessage("user", "x")]) == text_tokenizer("byte_level").render_chat(
        [ChatMessage("user", "x")]
    )


def test_a_folder_without_a_tokenizer_is_refused(tmp_path: Path) -> None:
    """The error says what is missing."""
    with pytest.raises(ModelRefusedError, match=r"tokenizer\.json"):
        TextTokenizer.load(tmp_path)
