import pytest
from tokenizers import AddedToken, Tokenizer, models, normalizers, pre_tokenizers
from transformers import PreTrainedTokenizerFast

from paceline.text.length_bound import length_bound
from paceline.text.tokenizer import TextTokenizer
from tiny_tokenizers import CORPUS, HARD_TEXTS, KINDS, byte_level, text_tokenizer


def _bpe(normalizer=None, splitter=None, added=(), lacks="", **model):
    """A byte-level BPE without merges, so that each id is one byte, but for what was added."""
    letters = sorted(set(pre_tokenizers.ByteLevel.alphabet()) - set(lacks))
    vocab = {letter: index for index, letter in enumerate(letters)}
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
    assert length_bound(_bpe()).longest_token_bytes == 1
    assert length_bound(_bpe(added=["안녕"])).longest_token_bytes == 6
    assert length_bound(byte_level()).longest_token_bytes > 4


def test_composition_is_allowed_for():
    """Text that a normaliser composes may have three times the bytes of what is tokenised."""
    wrapped = _bpe(normalizer=normalizers.NFC())
    letters = "\u1112\u1161\u11ab" * 40

    assert length_bound(wrapped).longest_token_bytes == 3
    assert TextTokenizer(wrapped).least_tokens(letters) <= len(TextTokenizer(wrapped).encode(letters))


def test_bytes_that_the_vocabulary_lacks_do_not_count():
    """Some vocabularies have no control characters: any number of them gives no id."""
    tokenizer = TextTokenizer(_bpe(lacks="Ĕñ"))  # the bytes 0x14 and 0xf1

    assert tokenizer.encode("\x14" * 99 + "ab") == tokenizer.encode("ab")
    assert tokenizer.least_tokens("\x14" * 99 + "ab") == 2
    assert tokenizer.least_tokens("\U00040000") == len(tokenizer.encode("\U00040000")) == 3


@pytest.mark.parametrize(
    "tokenizer",
    [
        lambda: _bpe(normalizer=normalizers.Strip()),
        lambda: _bpe(normalizer=normalizers.NFC(), lacks="Ĕ"),
        lambda: _bpe(lacks="Ĕ", unk_token="!"),  # noqa: S106
        lambda: _bpe(normalizer=normalizers.Replace("  ", " ")),
        lambda: _bpe(splitter=pre_tokenizers.WhitespaceSplit()),
        lambda: _bpe(added=[AddedToken("<x>", lstrip=True)]),
        lambda: PreTrainedTokenizerFast(tokenizer_object=Tokenizer(models.BPE({"a": 0}, [], byte_fallback=True))),
        lambda: PreTrainedTokenizerFast(tokenizer_object=Tokenizer(models.WordLevel({"[UNK]": 0}, unk_token="[UNK]"))),  # noqa: S106
    ],
)
def test_where_text_may_vanish_there_is_no_bound(tokenizer):
    """Unknown words, stripped and replaced text: a long prompt may have few ids, and is not refused for its length."""
    assert length_bound(tokenizer()) is None
