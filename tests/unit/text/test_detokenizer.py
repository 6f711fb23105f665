"""Streamed text equals whole text, whatever was cut where."""

import random
from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from paceline.text.detokenizer import IncrementalDetokenizer
from paceline.text.tokenizer import TextTokenizer
from tiny_tokenizers import HARD_TEXTS, KINDS, text_tokenizer

kinds = pytest.mark.parametrize("kind", KINDS)


def _stream(tokenizer: TextTokenizer, prompt: Sequence[int], output: Sequence[int], block: int = 1) -> list[str]:
    detokenizer = IncrementalDetokenizer(tokenizer, prompt)
    deltas = [detokenizer.push(output[at : at + block]) for at in range(0, len(output), block)]
    return [*deltas, detokenizer.flush()]


def _in_context(tokenizer: TextTokenizer, prompt: Sequence[int], output: Sequence[int]) -> str:
    """The output's part of the whole decoded text."""
    before = tokenizer.decode(prompt)
    whole = tokenizer.decode([*prompt, *output])
    assert whole.startswith(before)
    return whole[len(before) :]


@kinds
@pytest.mark.parametrize("text", HARD_TEXTS)
@pytest.mark.parametrize("block", range(1, 7))
def test_characters_over_several_tokens_stream_whole(kind: str, text: str, block: int) -> None:
    """Korean, joined emoji, flags and Thai: the deltas join to the text, and no U+FFFD is ever shown."""
    tokenizer = text_tokenizer(kind)
    output = tokenizer.encode_fragment(text)
    deltas = _stream(tokenizer, tokenizer.encode("hello"), output, block)
    assert "".join(deltas) == _in_context(tokenizer, tokenizer.encode("hello"), output)
    assert text.lstrip() in "".join(deltas)
    assert not any("\ufffd" in delta for delta in deltas)


@kinds
def test_text_does_not_wait_longer_than_its_characters(kind: str) -> None:
    """Each whole character is out with the token that completes it: nothing is kept for the end."""
    tokenizer = text_tokenizer(kind)
    for text in HARD_TEXTS:
        output = tokenizer.encode_fragment(text)
        assert _stream(tokenizer, tokenizer.encode("hello"), output)[-1] == ""


@kinds
@given(data=st.data())
@settings(max_examples=150, deadline=None)
def test_any_valid_text_streams_exactly(kind: str, data: st.DataObject) -> None:
    """For any prompt and output text, at any cut, the joined deltas are the output in its context."""
    tokenizer = text_tokenizer(kind)
    alphabet = st.characters(exclude_categories=["Cs", "Cc"], exclude_characters="\ufffd▁")
    prompt = tokenizer.encode(data.draw(st.text(alphabet, max_size=12)))
    output = tokenizer.encode_fragment(data.draw(st.text(alphabet, max_size=30)))
    block = data.draw(st.integers(1, 6))
    assert "".join(_stream(tokenizer, prompt, output, block)) == _in_context(tokenizer, prompt, output)


@given(st.lists(st.integers(0, 319), max_size=60), st.integers(1, 6))
@settings(max_examples=300, deadline=None)
def test_any_ids_of_a_byte_level_vocabulary_stream_exactly(output: list[int], block: int) -> None:
    """Invalid bytes included: the joined deltas equal the whole decoded text."""
    tokenizer = text_tokenizer("byte_level")
    assert "".join(_stream(tokenizer, (), output, block)) == tokenizer.decode(output)


@given(st.lists(st.integers(0, 258), max_size=60))
@settings(max_examples=200, deadline=None)
def test_deltas_do_not_depend_on_how_tokens_are_grouped(output: list[int]) -> None:
    """Ill-formed runs of byte tokens too give the same text in blocks of 1 and of 5."""
    tokenizer = text_tokenizer("byte_fallback")
    assert "".join(_stream(tokenizer, (), output, 1)) == "".join(_stream(tokenizer, (), output, 5))


def test_a_fault_in_byte_tokens_spares_the_characters_before_it() -> None:
    """A whole character stays, the stray byte becomes one U+FFFD, later text is untouched."""
    tokenizer = text_tokenizer("byte_fallback")
    stray = (*tokenizer.encode_fragment("한")[1:], 3 + 0x80, *tokenizer.encode_fragment("world"))
    assert "".join(_stream(tokenizer, tokenizer.encode("hello"), stray)) == "한\ufffd world"


@kinds
def test_long_invalid_output_costs_bounded_work(kind: str) -> None:
    """A thousand stray bytes: the window stays short and each byte is shown in time."""
    tokenizer = text_tokenizer(kind)
    byte = next(i for i in range(400) if tokenizer.decode([i]) == "\ufffd")
    detokenizer = IncrementalDetokenizer(tokenizer, tokenizer.encode("hello"))
    shown = ""
    for count in range(1, 1001):
        shown += detokenizer.push([byte])
        assert len(detokenizer._window) <= 32
        assert count - len(shown) <= 8
    assert shown + detokenizer.flush() == "\ufffd" * 1000


@kinds
def test_prompt_text_is_never_shown_when_it_ends_inside_a_character(kind: str) -> None:
    """A prompt of 'hello ' and two of three bytes: the completed character comes, and nothing of the prompt."""
    tokenizer = text_tokenizer(kind)
    character = [
        i for i in tokenizer.encode_fragment("뷁") if len(tokenizer.decode([i])) and tokenizer.decode([i]) != " "
    ]
    assert len(character) == 3
    prompt = [*tokenizer.encode("hello "), *character[:2]]
    completed = _stream(tokenizer, prompt, [character[2], *tokenizer.encode_fragment("ok")])
    assert "".join(completed) in ("뷁ok", "뷁 ok")
    broken = _stream(tokenizer, prompt, tokenizer.encode_fragment("ok"))
    assert "".join(broken) in ("ok", " ok")


def test_leading_space_depends_on_the_prompt() -> None:
    """A word piece after other text keeps its space; as the first of all text it has none."""
    tokenizer = text_tokenizer("byte_fallback")
    word = tokenizer.encode_fragment("world")
    assert "".join(_stream(tokenizer, tokenizer.encode("hello"), word)) == " world"
    assert "".join(_stream(tokenizer, (), word)) == "world"


@kinds
def test_ids_without_text_are_invisible_anywhere(kind: str) -> None:
    """Special tokens and padding rows between the bytes of a character change nothing."""
    tokenizer = text_tokenizer(kind)
    hidden = [1, 2, 100_000]
    output = [
        i
        for token_id in tokenizer.encode_fragment(HARD_TEXTS[0])
        for i in (token_id, random.Random(token_id).choice(hidden))
    ]
    deltas = _stream(tokenizer, tokenizer.encode("hello"), output)
    assert "".join(deltas).strip() == HARD_TEXTS[0]


def test_a_long_run_of_ids_without_text_keeps_the_left_context() -> None:
    """A word piece after forty end tokens still gets its space from the word before them."""
    tokenizer = text_tokenizer("byte_fallback")
    output = [*tokenizer.encode_fragment("hello"), *[2] * 40, *tokenizer.encode_fragment("world")]
    assert "".join(_stream(tokenizer, (), output)) == "hello world"


def test_special_tokens_show_when_asked_for() -> None:
    """With `skip_special` off a special token's own text is part of the output."""
    tokenizer = text_tokenizer("byte_level")
    detokenizer = IncrementalDetokenizer(tokenizer, (), skip_special=False)
    assert detokenizer.push([*tokenizer.encode_fragment("fox"), 2]) + detokenizer.flush() == "fox</s>"
