import pytest
from tokenizers import AddedToken, Tokenizer, models, normalizers, pre_tokenizers
from transformers import PreTrainedTokenizerFast

from paceline.text.longest_token import longest_token_bytes
from paceline.text.tokenizer import TextTokenizer
from tiny_tokenizers import CORPUS, HARD_TEXTS, KINDS, byte_level, text_tokenizer


def _bpe(normalizer=None, splitter=None, added=(), **model):
    """A byte-level BPE without merges, so that each id is one byte, but for what was added."""
    vocab = {character: index for index, character in enumerate(sorted(pre_tokenizers.ByteLevel.alphabet()))}
    tokenizer = Tokenizer(models.BPE(vocab=vocab, merges=[], **model))
    tokenizer.pre_tokenizer = splitter or pre_tokenizers.ByteLevel(add_prefix_space=False)
    if normalizer is not None:
        tokenizer.normalizer = normalizer
    tokenizer.add_tokens(list(added))
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("text", [*CORPUS, *HARD_TEXTS, " " * 500, "</s>" * 50, "안" * 300, "a" * 999])
def test_no_text_has_fewer_ids_than_said(kind, text):
    """The bound holds for words, runs, special tokens and characters of many bytes."""
    tokenizer = text_tokenizer(kind)
    assert 0 < tokenizer.least_tokens(text) <= len(tokenizer.encode_fragment(text))


def test_the_longest_token_counts_in_bytes():
    """Byte-level tokens have one character a byte; added tokens are what they are."""
    assert longest_token_bytes(_bpe()) == 1
    assert longest_token_bytes(_bpe(added=["안녕"])) == 6
    assert longest_token_bytes(byte_level()) > 4


def test_composition_is_allowed_for():
    """Text that a normaliser composes may have three times the bytes of what is tokenised."""
    wrapped = _bpe(normalizer=normalizers.NFC())
    letters = "\u1112\u1161\u11ab" * 40

    assert longest_token_bytes(wrapped) == 3
    assert TextTokenizer(wrapped).least_tokens(letters) <= len(TextTokenizer(wrapped).encode(letters))


@pytest.mark.parametrize(
    "tokenizer",
    [
        lambda: _bpe(normalizer=normalizers.Strip()),
        lambda: _bpe(normalizer=normalizers.Replace("  ", " ")),
        lambda: _bpe(splitter=pre_tokenizers.WhitespaceSplit()),
        lambda: _bpe(added=[AddedToken("<x>", lstrip=True)]),
        lambda: PreTrainedTokenizerFast(tokenizer_object=Tokenizer(models.BPE({"a": 0}, [], byte_fallback=True))),
        lambda: PreTrainedTokenizerFast(tokenizer_object=Tokenizer(models.WordLevel({"[UNK]": 0}, unk_token="[UNK]"))),  # noqa: S106
    ],
)
def test_where_text_may_vanish_there_is_no_bound(tokenizer):
    """Unknown words, stripped and replaced text: a long prompt may have few ids, and is not refused for its length."""
    assert longest_token_bytes(tokenizer()) is None
