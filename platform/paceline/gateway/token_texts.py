"""Text and bytes of single tokens, for logprobs."""

from typing import NamedTuple

from paceline.text.tokenizer import TextTokenizer

_MAX_CACHED = 65536
_REPLACEMENT = "\ufffd"


class TokenText(NamedTuple):
    """How one token reads on its own."""

    text: str
    utf8: list[int] | None  # None where the token is a part of a character


class TokenTexts:
    """Looks up token texts; one instance per process, since answers repeat the same tokens."""

    def __init__(self, tokenizer: TextTokenizer) -> None:
        self.tokenizer = tokenizer
        self._cache: dict[int, TokenText] = {}

    def of(self, token_id: int) -> TokenText:
        """The token's text as it reads inside a sentence, special tokens included."""
        found = self._cache.get(token_id)
        if found is None:
            found = self._read(token_id)
            if len(self._cache) < _MAX_CACHED:
                self._cache[token_id] = found
        return found

    def _read(self, token_id: int) -> TokenText:
        # Some decoders drop the space in front of the first token, so the text is read off a second copy.
        alone = self.tokenizer.decode([token_id], skip_special=False)
        text = self.tokenizer.decode([token_id, token_id], skip_special=False)[len(alone) :]
        return TokenText(text, None if _REPLACEMENT in text else list(text.encode("utf-8")))
