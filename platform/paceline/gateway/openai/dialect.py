"""Where the two endpoints differ in what they send."""

from collections.abc import Sequence
from typing import Any, Protocol

from paceline.core.generation import FinishReason, TokenLogprob
from paceline.gateway.openai.logprob_bodies import ChatLogprobs, CompletionLogprobs
from paceline.gateway.token_texts import TokenTexts


class LogprobBodies(Protocol):
    """Builds the ``logprobs`` objects of one choice, in order."""

    def body(self, logprobs: Sequence[TokenLogprob]) -> dict[str, Any]:
        """The object for the next tokens."""


class Dialect(Protocol):
    """Shapes of one endpoint."""

    id_prefix: str
    whole_object: str  # value of "object" in a whole answer
    chunk_object: str  # value of "object" in a streamed one
    prompt_field: str

    def logprob_bodies(self, texts: TokenTexts, prompt_token_ids: Sequence[int]) -> LogprobBodies:
        """A builder for one choice."""

    def opening(self, index: int) -> dict[str, Any] | None:
        """First streamed entry of a choice; None where there is none."""

    def piece(self, index: int, text: str, logprobs: dict[str, Any] | None) -> dict[str, Any]:
        """Streamed entry with new text."""

    def ending(self, index: int, finish: FinishReason) -> dict[str, Any]:
        """Last streamed entry of a choice."""

    def whole(
        self, index: int, text: str, finish: FinishReason | None, logprobs: dict[str, Any] | None
    ) -> dict[str, Any]:
        """A choice in a whole answer."""


class ChatDialect:
    """POST /v1/chat/completions."""

    id_prefix = "chatcmpl-"
    whole_object = "chat.completion"
    chunk_object = "chat.completion.chunk"
    prompt_field = "messages"

    def logprob_bodies(self, texts: TokenTexts, prompt_token_ids: Sequence[int]) -> LogprobBodies:  # noqa: ARG002
        """A builder for one choice."""
        return ChatLogprobs(texts)

    def opening(self, index: int) -> dict[str, Any] | None:
        """The role, once per choice."""
        return _delta(index, {"role": "assistant", "content": ""})

    def piece(self, index: int, text: str, logprobs: dict[str, Any] | None) -> dict[str, Any]:
        """New text."""
        return _delta(index, {"content": text}, logprobs=logprobs)

    def ending(self, index: int, finish: FinishReason) -> dict[str, Any]:
        """The reason, with an empty delta."""
        return _delta(index, {}, finish=finish.value)

    def whole(
        self, index: int, text: str, finish: FinishReason | None, logprobs: dict[str, Any] | None
    ) -> dict[str, Any]:
        """The assistant's message."""
        message = {"role": "assistant", "content": text, "refusal": None}
        return {"index": index, "message": message, "logprobs": logprobs, "finish_reason": finish and finish.value}


class CompletionDialect:
    """POST /v1/completions."""

    id_prefix = "cmpl-"
    whole_object = "text_completion"
    chunk_object = "text_completion"
    prompt_field = "prompt"

    def logprob_bodies(self, texts: TokenTexts, prompt_token_ids: Sequence[int]) -> LogprobBodies:
        """A builder for one choice."""
        return CompletionLogprobs(texts, prompt_token_ids)

    def opening(self, index: int) -> dict[str, Any] | None:  # noqa: ARG002
        """Nothing: text completions have no role."""
        return None

    def piece(self, index: int, text: str, logprobs: dict[str, Any] | None) -> dict[str, Any]:
        """New text."""
        return {"index": index, "text": text, "logprobs": logprobs, "finish_reason": None}

    def ending(self, index: int, finish: FinishReason) -> dict[str, Any]:
        """The reason, with an empty text."""
        return self.whole(index, "", finish, None)

    def whole(
        self, index: int, text: str, finish: FinishReason | None, logprobs: dict[str, Any] | None
    ) -> dict[str, Any]:
        """The text."""
        return {"index": index, "text": text, "logprobs": logprobs, "finish_reason": finish and finish.value}


def _delta(
    index: int, delta: dict[str, Any], *, logprobs: dict[str, Any] | None = None, finish: str | None = None
) -> dict[str, Any]:
    return {"index": index, "delta": delta, "logprobs": logprobs, "finish_reason": finish}
