"""Body of POST /v1/completions."""

from paceline.errors import InvalidRequestError, UnsupportedFeatureError
from paceline.gateway.gateway_request import GatewayRequest
from paceline.gateway.openai.sampling_fields import SamplingFields

DEFAULT_MAX_TOKENS = 16  # OpenAI's, for this endpoint only


class CompletionRequest(SamplingFields):
    """A raw prompt, as text or token ids, and how to continue it."""

    prompt: str | list[int] | list[str] | list[list[int]]
    logprobs: int | None = None

    def to_gateway_request(self, *, label: str = "", traceparent: str = "") -> GatewayRequest:
        """The request as the service wants it. Raises InvalidRequestError."""
        return GatewayRequest(
            prompt=self._single_prompt(),
            sampling=self.sampling_params(self.logprobs),
            model=self.model,
            max_tokens=DEFAULT_MAX_TOKENS if self.max_tokens is None else self.max_tokens,
            bad_words=tuple(self.bad_words),
            seed=self.seed,
            num_choices=self.n,
            speculation=self.preference,
            explain=self.explain,
            priority=self.urgency,
            label=label,
            traceparent=traceparent,
        )

    def _single_prompt(self) -> str | tuple[int, ...]:
        prompt = self.prompt
        if isinstance(prompt, str):
            return prompt
        if not prompt:
            raise InvalidRequestError("The prompt must not be empty.", "prompt")
        if all(isinstance(item, int) for item in prompt):
            return tuple(item for item in prompt if isinstance(item, int))
        if len(prompt) > 1:
            raise UnsupportedFeatureError("prompt", "send one request per prompt; they are batched anyway")
        only = prompt[0]
        return only if isinstance(only, str) else tuple(only) if isinstance(only, list) else (only,)
