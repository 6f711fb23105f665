"""Token ids to text, token by token, without ever showing half a character."""

from collections.abc import Iterable, Sequence

from paceline.text.tokenizer import TextTokenizer

_REPLACEMENT = "\ufffd"
_PRIMING_TOKENS = 6  # prompt tokens that give the first output token its left context
_MAX_PARTIAL = 3  # an unfinished UTF-8 character has at most 3 bytes, so at most 3 tokens or U+FFFD
_MAX_WINDOW = 24  # tokens decoded again per step, at most
_KEPT_WINDOW = 8


class IncrementalDetokenizer:
    """Decodes one choice's output; the joined pieces equal the output's part of the whole decoded text.

    A window of the newest ids is decoded at each token and compared with what was shown of it, since
    the text of a token depends on the tokens to its left (spaces, bytes of one character). Each token costs the same,
    however long the answer is, and the pieces do not depend on how tokens were grouped.

    One difference is wanted: where a tokenizer with byte fallback meets an ill-formed run of byte
    tokens, its own decoder replaces the whole run; characters that were complete before the fault stay here.
    """

    def __init__(self, tokenizer: TextTokenizer, prompt_token_ids: Sequence[int], *, skip_special: bool = True) -> None:
        self._tokenizer = tokenizer
        self._skip_special = skip_special
        tail = (i for i in reversed(prompt_token_ids) if tokenizer.has_text(i, skip_special=skip_special))
        primed = [token_id for token_id, _ in zip(tail, range(_PRIMING_TOKENS), strict=False)]
        self._window: list[int] = primed[::-1]
        self._num_context = len(self._window)  # leading ids of the window whose text is out
        self._shown = self._decode()  # text of the window that is out; at first the prompt's, never emitted

    def push(self, token_ids: Iterable[int]) -> str:
        """Take output ids; return the text that became final."""
        return "".join(
            self._push_one(token_id)
            for token_id in token_ids
            if self._tokenizer.has_text(token_id, skip_special=self._skip_special)
        )

    def flush(self) -> str:
        """Text that is still held back, as it is; for the end of the output."""
        text = self._decode()
        if not self._resume_at_edge(text):
            self._forget_context()
            text = self._decode()
        piece = text[len(self._shown) :]
        self._shown = text
        return piece

    def _push_one(self, token_id: int) -> str:
        self._window.append(token_id)
        text = self._decode()
        if not self._resume_at_edge(text):
            if text.endswith(_REPLACEMENT) and len(self._window) - self._num_context <= _MAX_PARTIAL:
                return ""  # the next bytes may yet complete a character
            self._forget_context()
            text = self._decode()
        settled = _settled(text)
        if len(settled) <= len(self._shown):
            piece = ""
        else:
            piece = settled[len(self._shown) :]
            self._shown = settled
        if piece and settled == text:
            self._slide()
        elif len(self._window) > _MAX_WINDOW:
            self._shrink(text)
        return piece

    def _resume_at_edge(self, text: str) -> bool:
        """Whether the window's text goes on from what was shown.

        A prompt may end inside a character; once the output completes it, the text goes on from the
        last whole character instead.
        """
        if text.startswith(self._shown):
            return True
        edge = self._shown.rstrip(_REPLACEMENT)
        if edge == self._shown or not text.startswith(edge):
            return False
        self._shown = edge
        return True

    def _forget_context(self) -> None:
        """Decode the newest ids on their own: bytes beside the context made its text unreadable."""
        del self._window[: self._num_context]
        self._num_context = 0
        self._shown = ""

    def _slide(self) -> None:
        """At a character's edge the ids just shown become the context of the next ones."""
        del self._window[: self._num_context]
        self._num_context = len(self._window)
        self._shown = self._decode()

    def _shrink(self, text: str) -> None:
        """Bound the window where no character's edge comes, as in a long run of invalid bytes."""
        num_pending = len(text) - len(self._shown)
        del self._window[:-_KEPT_WINDOW]
        self._num_context = max(0, len(self._window) - _MAX_PARTIAL)
        shorter = self._decode()
        self._shown = shorter[: len(shorter) - num_pending]

    def _decode(self) -> str:
        return self._tokenizer.decode(self._window, skip_special=self._skip_special)


def _settled(text: str) -> str:
    """The part of ``text`` that later tokens cannot change."""
    end = len(text)
    while end > max(0, len(text) - _MAX_PARTIAL) and text[end - 1] == _REPLACEMENT:
        end -= 1
    return text[:end]
