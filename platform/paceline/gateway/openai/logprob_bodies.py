"""Logprobs in the shapes of the two endpoints, streamed or whole: joined pieces equal the whole."""

from collections.abc import Sequence
from typing import Any

from paceline.core.generation import TokenLogprob
from paceline.gateway.token_texts import TokenTexts
from paceline.text.detokenizer import IncrementalDetokenizer

_LOWEST = -9999.0  # stands for minus infinity, which JSON does not have


class ChatLogprobs:
    """``choices[].logprobs`` of chat completions."""

    def __init__(self, texts: TokenTexts) -> None:
        self._texts = texts

    def body(self, logprobs: Sequence[TokenLogprob]) -> dict[str, Any]:
        """One entry per token, each with its own alternatives."""
        return {"content": [self._token(entry) for entry in logprobs], "refusal": None}

    def _token(self, entry: TokenLogprob) -> dict[str, Any]:
        top = [self._entry(token_id, logprob) for token_id, logprob in entry.top]
        return self._entry(entry.token_id, entry.logprob) | {"top_logprobs": top}

    def _entry(self, token_id: int, logprob: float) -> dict[str, Any]:
        text = self._texts.of(token_id)
        return {"token": text.text, "logprob": max(logprob, _LOWEST), "bytes": text.utf8}


class CompletionLogprobs:
    """``choices[].logprobs`` of text completions, of one choice; keeps its place in the text.

    ``text_offset`` of a token is where its text starts. A token that only begins a character has the
    offset of that character.
    """

    def __init__(self, texts: TokenTexts, prompt_token_ids: Sequence[int]) -> None:
        self._texts = texts
        self._decoder = IncrementalDetokenizer(texts.tokenizer, prompt_token_ids)
        self._offset = 0

    def body(self, logprobs: Sequence[TokenLogprob]) -> dict[str, Any]:
        """Parallel lists, one entry per token."""
        return {
            "tokens": [self._texts.of(entry.token_id).text for entry in logprobs],
            "token_logprobs": [max(entry.logprob, _LOWEST) for entry in logprobs],
            "top_logprobs": [self._top(entry) for entry in logprobs],
            "text_offset": [self._advance(entry.token_id) for entry in logprobs],
        }

    def _top(self, entry: TokenLogprob) -> dict[str, float] | None:
        """The best alternative wins where two tokens read alike."""
        if not entry.top:
            return None
        best: dict[str, float] = {}
        for token_id, logprob in entry.top:
            best.setdefault(self._texts.of(token_id).text, max(logprob, _LOWEST))
        return best

    def _advance(self, token_id: int) -> int:
        start = self._offset
        self._offset += len(self._decoder.push([token_id]))
        return start
