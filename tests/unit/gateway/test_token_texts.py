import pytest

import tiny_tokenizers
from paceline.gateway.token_texts import TokenTexts


@pytest.mark.parametrize("kind", tiny_tokenizers.KINDS)
@pytest.mark.parametrize("text", ["hello world, he", "안녕 fox"])
def test_bytes_of_tokens_join_to_the_text(kind, text):
    """Where every token is whole characters, their bytes in order are the text's; a leading space is kept."""
    tokenizer = tiny_tokenizers.text_tokenizer(kind)
    read = [TokenTexts(tokenizer).of(token_id) for token_id in tokenizer.encode_fragment(text)]

    if any(token.utf8 is None for token in read):
        assert any("\ufffd" in token.text for token in read)
    else:
        assert bytes(value for token in read for value in token.utf8).decode().lstrip() == text


def test_a_space_in_front_belongs_to_the_token():
    """A piece that begins a word reads with its space, also where the decoder drops a text's first space."""
    tokenizer = tiny_tokenizers.text_tokenizer("byte_fallback")
    spaced = tokenizer.encode_fragment("he he")[-1]

    assert TokenTexts(tokenizer).of(spaced).text == " he"


@pytest.mark.parametrize("kind", tiny_tokenizers.KINDS)
def test_a_part_of_a_character_has_no_bytes(kind):
    """Its text is the replacement character, and the bytes are unknown rather than wrong."""
    tokenizer = tiny_tokenizers.text_tokenizer(kind)
    part = TokenTexts(tokenizer).of(tokenizer.encode_fragment("\U0001f9ff")[-1])

    assert (part.text, part.utf8) == ("\ufffd", None)


def test_special_tokens_can_be_read():
    """An end-of-sequence token has an entry of its own in logprobs."""
    tokenizer = tiny_tokenizers.text_tokenizer("byte_level")

    assert TokenTexts(tokenizer).of(tokenizer.eos_token_ids[0]).text == "</s>"
