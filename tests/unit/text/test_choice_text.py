"""Text of one choice, token by token."""

import pytest

from paceline.text.choice_text import ChoiceText
from tiny_tokenizers import KINDS, text_tokenizer

kinds = pytest.mark.parametrize("kind", KINDS)


@kinds
def test_the_token_that_completes_a_stop_string_ends_the_text(kind: str) -> None:
    """Text before the stop string is shown, the rest of that token and all later ones are not."""
    tokenizer = text_tokenizer(kind)
    text = ChoiceText(tokenizer, tokenizer.encode("hello"), ["own fox"])
    shown = ""
    for token_id in tokenizer.encode_fragment("The quick brown fox jumps"):
        step = text.push(token_id)
        shown += step.text
        if step.stopped:
            break
    assert shown.strip() == "The quick br"
    assert text.offset == len(shown)
    assert text.push(5) == ("", True)
    assert text.flush() == ""


@kinds
def test_offset_counts_all_characters_given_out(kind: str) -> None:
    """Held-back text counts when it comes out, at the latest with `flush`."""
    tokenizer = text_tokenizer(kind)
    text = ChoiceText(tokenizer, (), ["fox!"])
    shown = "".join(text.push(token_id).text for token_id in tokenizer.encode_fragment("the fox"))
    assert shown.strip() == "the"
    rest = text.flush()
    assert shown + rest == "the fox"
    assert text.offset == len("the fox")


@kinds
def test_replaying_tokens_rebuilds_text_and_hold_back(kind: str) -> None:
    """A choice that moved goes on with the very text it would have had."""
    tokenizer = text_tokenizer(kind)
    output = tokenizer.encode_fragment("안녕 the quick fox 👨‍👩‍👧 jumps")
    undisturbed = ChoiceText(tokenizer, tokenizer.encode("hi"), ["fox 👨‍👩‍👦"])
    expected = "".join(undisturbed.push(i).text for i in output) + undisturbed.flush()
    for cut in range(len(output)):
        before = ChoiceText(tokenizer, tokenizer.encode("hi"), ["fox 👨‍👩‍👦"])
        shown = "".join(before.push(i).text for i in output[:cut])
        after = ChoiceText(tokenizer, tokenizer.encode("hi"), ["fox 👨‍👩‍👦"])
        for token_id in output[:cut]:
            after.push(token_id)
        assert after.offset == len(shown)
        shown += "".join(after.push(i).text for i in output[cut:]) + after.flush()
        assert shown == expected


def test_a_stop_string_may_come_out_only_at_the_end() -> None:
    """Text held as an unfinished character can match when it is flushed."""
    tokenizer = text_tokenizer("byte_level")
    stray = next(i for i in range(300) if tokenizer.decode([i]) == "\ufffd")
    text = ChoiceText(tokenizer, (), ["\ufffd"])
    assert text.push(stray) == ("", False)
    assert text.flush() == ""
