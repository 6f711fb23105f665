"""Fields that chat and text completions share."""

from typing import Annotated, Literal

from pydantic import Field

from paceline.core.plans import SpeculationMode, SpeculationPreference
from paceline.core.priority import Priority
from paceline.core.sampling_params import SamplingParams
from paceline.errors import InvalidRequestError, UnsupportedFeatureError
from paceline.gateway.openai.json_body import RequestModel


class StreamOptions(RequestModel):
    """How a stream is framed."""

    include_usage: bool | None = None
    include_obfuscation: bool | None = None


class SpeculationFields(RequestModel):
    """The request's wish about speculation."""

    mode: Literal["auto", "on", "off"] | None = None
    drafter: Annotated[str, Field(min_length=1)] | None = None
    max_draft_tokens: int | None = None


class SamplingFields(RequestModel):
    """Types only; ranges are the same for all doors and are checked in `request_checks`."""

    model: str | None = None
    temperature: float = 1.0
    top_p: float = 1.0
    top_k: int = 0
    min_p: float = 0.0
    repetition_penalty: float = 1.0
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    logit_bias: dict[str, float] = Field(default_factory=dict)
    n: int = 1
    stop: str | list[str] = Field(default_factory=list)
    stop_token_ids: list[int] = Field(default_factory=list)
    bad_words: list[str] = Field(default_factory=list)
    min_tokens: int = 0
    max_tokens: int | None = None
    ignore_eos: bool = False
    seed: Annotated[int, Field(ge=-(2**63), lt=2**63)] | None = None
    stream: bool = False
    stream_options: StreamOptions | None = None
    speculation: SpeculationFields = SpeculationFields()
    explain: bool = False
    priority: Literal["high", "normal", "low"] = "normal"

    def sampling_params(self, logprobs: int | None) -> SamplingParams:
        """The parameters as the engine wants them, but for max_tokens and bad_words."""
        return SamplingParams(
            temperature=self.temperature,
            top_p=self.top_p,
            top_k=self.top_k,
            min_p=self.min_p,
            repetition_penalty=self.repetition_penalty,
            presence_penalty=self.presence_penalty,
            frequency_penalty=self.frequency_penalty,
            logit_bias=_logit_bias(self.logit_bias),
            min_tokens=self.min_tokens,
            stop=(self.stop,) if isinstance(self.stop, str) else tuple(self.stop),
            stop_token_ids=tuple(self.stop_token_ids),
            ignore_eos=self.ignore_eos,
            logprobs=logprobs,
        )

    @property
    def preference(self) -> SpeculationPreference:
        """The wish about speculation."""
        wish = self.speculation
        return SpeculationPreference(SpeculationMode(wish.mode or "auto"), wish.drafter, wish.max_draft_tokens)

    @property
    def urgency(self) -> Priority:
        """How urgent the request is."""
        return Priority[self.priority.upper()]

    def include_usage(self) -> bool:
        """Whether the stream ends with a usage chunk. Raises InvalidRequestError for misplaced options."""
        if self.stream_options is None:
            return False
        if not self.stream:
            raise InvalidRequestError("'stream_options' needs 'stream': true.", "stream_options")
        if self.stream_options.include_obfuscation:
            raise UnsupportedFeatureError("stream_options.include_obfuscation", "chunks are not padded")
        return bool(self.stream_options.include_usage)


def _logit_bias(bias: dict[str, float]) -> tuple[tuple[int, float], ...]:
    """Ids arrive as JSON keys, so as text."""
    if not all(key.isascii() and key.isdigit() and len(key) < 10 for key in bias):
        raise InvalidRequestError("The keys of 'logit_bias' must be token ids.", "logit_bias")
    return tuple(sorted((int(key), value) for key, value in bias.items()))
