"""The demo model's own tokenizer and template."""

import pytest

from paceline.modeling.resolve import resolve_model
from paceline.text.chat import ChatMessage
from paceline.text.choice_text import ChoiceText
from paceline.text.tokenizer import TextTokenizer
from tiny_tokenizers import HARD_TEXTS

pytestmark = pytest.mark.model
START, END = 1, 2


@pytest.fixture(scope="module")
def tokenizer() -> TextTokenizer:
    return TextTokenizer.load(resolve_model("smollm2-135m"))


def test_a_chat_is_framed_once(tokenizer: TextTokenizer) -> None:
    """Each message is opened and closed once, and the assistant's turn is open at the end."""
    ids = tokenizer.render_chat([ChatMessage("system", "Be short."), ChatMessage("user", "Hi")])
    assert ids[0] == START
    assert ids.count(START) == 3
    assert ids.count(END) == 2
    assert tokenizer.decode(ids, skip_special=False).endswith("<|im_start|>assistant\n")
    assert tokenizer.eos_token_ids == (END,)


@pytest.mark.parametrize("text", HARD_TEXTS)
def test_hard_text_streams_whole(tokenizer: TextTokenizer, text: str) -> None:
    """Korean, joined emoji, flags and Thai, token by token, with the end token hidden."""
    prompt = tokenizer.render_chat([ChatMessage("user", "Hi")])
    choice = ChoiceText(tokenizer, prompt, [])
    pieces = [choice.push(token_id).text for token_id in (*tokenizer.encode_fragment(text), END)]
    assert "".join(pieces) + choice.flush() == text
    assert not any("\ufffd" in piece for piece in pieces)
