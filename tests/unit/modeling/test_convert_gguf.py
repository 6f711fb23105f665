from tokenizers import Tokenizer, models, pre_tokenizers

from paceline.modeling.convert_gguf import _split_digits


def test_digits_are_split_before_anything_else(tmp_path):
    """A digit never shares a word with the spaces before it, and each digit is a word of its own."""
    file = tmp_path / "tokenizer.json"
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.save(str(file))

    _split_digits(file)

    words = Tokenizer.from_file(str(file)).pre_tokenizer.pre_tokenize_str("a  12")
    assert [word for word, _ in words] == ["a", "ĠĠ", "1", "2"]
