"""Body of POST /v1/chat/completions."""

from typing import Any, Literal

from pydantic import Field

from paceline.errors import InvalidRequestError, UnsupportedFeatureError
from paceline.gateway.gateway_request import GatewayRequest
from paceline.gateway.openai.json_body import RequestModel
from paceline.gateway.openai.sampling_fields import SamplingFields
from paceline.text.chat import ChatMessage, canonical_role


class MessageFields(RequestModel):
    """One message. Fields that answers have are known here, since clients send them back."""

    role: Literal["developer", "system", "user", "assistant", "tool"]
    content: str | list[dict[str, Any]] | None = None
    name: str | None = None
    tool_call_id: str | None = None
    tool_calls: list[Any] | None = None
    function_call: dict[str, Any] | None = None
    audio: dict[str, Any] | None = None
    refusal: str | None = None
    annotations: list[Any] | None = None

    def to_message(self, path: str) -> ChatMessage:
        """The message for the chat template. Raises InvalidRequestError, naming the field below ``path``."""
        for field in ("tool_calls", "function_call", "audio", "refusal", "annotations"):
            if getattr(self, field):
                raise UnsupportedFeatureError(f"{path}.{field}", "only text is rendered; put it into 'content'")
        if self.content is None:
            raise InvalidRequestError(f"'{path}.content' is missing.", f"{path}.content")
        content = self.content if isinstance(self.content, str) else _join_parts(self.content, f"{path}.content")
        return ChatMessage(canonical_role(self.role), content, self.name, self.tool_call_id)


class ChatCompletionRequest(SamplingFields):
    """A conversation and how to continue it."""

    messages: list[MessageFields] = Field(min_length=1)
    max_completion_tokens: int | None = None
    logprobs: bool = False
    top_logprobs: int | None = None

    def to_gateway_request(self, *, label: str = "", traceparent: str = "") -> GatewayRequest:
        """The request as the service wants it. Raises InvalidRequestError."""
        if self.top_logprobs is not None and not self.logprobs:
            raise InvalidRequestError("'top_logprobs' needs 'logprobs': true.", "top_logprobs")
        return GatewayRequest(
            prompt=tuple(message.to_message(f"messages[{index}]") for index, message in enumerate(self.messages)),
            sampling=self.sampling_params((self.top_logprobs or 0) if self.logprobs else None),
            model=self.model,
            max_tokens=self._max_tokens(),
            bad_words=tuple(self.bad_words),
            seed=self.seed,
            num_choices=self.n,
            speculation=self.preference,
            explain=self.explain,
            priority=self.urgency,
            label=label,
            traceparent=traceparent,
        )

    def _max_tokens(self) -> int | None:
        new, old = self.max_completion_tokens, self.max_tokens
        if new is not None and old is not None and new != old:
            raise InvalidRequestError(
                "'max_tokens' and 'max_completion_tokens' contradict each other; send one of them.", "max_tokens"
            )
        return new if new is not None else old


def _join_parts(parts: list[dict[str, Any]], path: str) -> str:
    texts = []
    for index, part in enumerate(parts):
        kind, text = part.get("type"), part.get("text")
        if kind != "text":
            raise UnsupportedFeatureError(f"{path}[{index}].type", "only parts of type 'text' are read")
        if not isinstance(text, str):
            raise InvalidRequestError(f"'{path}[{index}].text' must be a string.", f"{path}[{index}].text")
        texts.append(text)
    return "".join(texts)
