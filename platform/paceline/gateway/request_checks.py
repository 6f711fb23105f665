"""Ranges and sizes of request values, the same for both doors, checked before any work is done."""

import math
from typing import NamedTuple

from paceline.core.sampling_params import SamplingParams
from paceline.errors import InvalidRequestError
from paceline.gateway.gateway_request import GatewayRequest

MAX_CHOICES = 16
MAX_STOPS = 4
MAX_STOP_CHARS = 1024
MAX_STOP_TOKEN_IDS = 64
MAX_BAD_WORDS = 256
MAX_BAD_WORD_TOKENS = 64
MAX_LOGIT_BIASES = 1024
MAX_MESSAGES = 4096
MAX_TOP_LOGPROBS = 20
MAX_DRAFT_TOKENS = 64
GREEDY_BELOW = 1e-4
"""A temperature below this is taken as 0: logits over it would leave float32's range long before it matters."""
_INT32_MAX = 2**31 - 1
_LARGEST_SHOWN = 10**15


class Range(NamedTuple):
    """Values that a number may have; ``low`` or ``high`` itself may be left out."""

    low: float
    high: float
    low_open: bool = False
    high_open: bool = False

    def holds(self, value: float) -> bool:
        """Whether the value lies inside; never for NaN."""
        above = value > self.low if self.low_open else value >= self.low
        below = value < self.high if self.high_open else value <= self.high
        return above and below

    def __str__(self) -> str:
        low = "above" if self.low_open else "from"
        high = "to below" if self.high_open else "to"
        return f"{low} {self.low:.10g} {high} {self.high:.10g}"


SAMPLING_RANGES: dict[str, Range] = {
    "temperature": Range(0, 2),
    "top_p": Range(0, 1, low_open=True),
    "top_k": Range(0, _INT32_MAX),
    "min_p": Range(0, 1, high_open=True),
    "repetition_penalty": Range(0.01, 100),
    "presence_penalty": Range(-2, 2),
    "frequency_penalty": Range(-2, 2),
    "min_tokens": Range(0, _INT32_MAX),
}
LOGIT_BIAS = Range(-100, 100)


def check_request(request: GatewayRequest, vocab_size: int) -> None:
    """Raise InvalidRequestError, naming the field, unless every value is in its range."""
    _check_range("n", request.num_choices, Range(1, MAX_CHOICES))
    if request.max_tokens is not None:
        _check_range("max_tokens", request.max_tokens, Range(1, _INT32_MAX))
    if request.seed is not None and not -(2**63) <= request.seed < 2**64:
        raise InvalidRequestError("'seed' must be a 64-bit integer.", "seed")
    draft_tokens = request.speculation.max_draft_tokens
    if draft_tokens is not None:
        _check_range("speculation.max_draft_tokens", draft_tokens, Range(0, MAX_DRAFT_TOKENS))
    if request.deadline_s is not None and not (math.isfinite(request.deadline_s) and request.deadline_s > 0):
        raise InvalidRequestError("'deadline_s' must be a finite number of seconds above 0.", "deadline_s")
    if request.sampling.logprobs is not None:
        field = "top_logprobs" if request.prompt_is_chat else "logprobs"
        _check_range(field, request.sampling.logprobs, Range(0, MAX_TOP_LOGPROBS))
    _check_prompt(request, vocab_size)
    _check_sampling(request.sampling, vocab_size)
    _check_words(request)


def _check_range(field: str, value: float, allowed: Range) -> None:
    if not allowed.holds(value):
        raise InvalidRequestError(f"'{field}' must be {allowed}, got {_shown(value)}.", field)


def _shown(value: float) -> str:
    # JSON's integers have no bound, and a float's format has one.
    return "an integer far outside" if isinstance(value, int) and abs(value) > _LARGEST_SHOWN else f"{value:.10g}"


def _check_size(field: str, size: int, limit: int) -> None:
    if size > limit:
        raise InvalidRequestError(f"'{field}' may have at most {limit} entries, got {size}.", field)


def _check_ids(field: str, token_ids: tuple[int, ...], vocab_size: int) -> None:
    if any(not 0 <= token_id < vocab_size for token_id in token_ids):
        raise InvalidRequestError(f"'{field}' has a token id outside 0 to {vocab_size - 1}.", field)


def _check_prompt(request: GatewayRequest, vocab_size: int) -> None:
    field = "messages" if request.prompt_is_chat else "prompt"
    if not request.prompt:
        raise InvalidRequestError("The prompt must not be empty.", field)
    if isinstance(request.prompt, str):
        return
    if request.prompt_is_chat:
        _check_size(field, len(request.prompt), MAX_MESSAGES)
    else:
        _check_ids(field, tuple(item for item in request.prompt if isinstance(item, int)), vocab_size)


def _check_sampling(sampling: SamplingParams, vocab_size: int) -> None:
    for field, allowed in SAMPLING_RANGES.items():
        _check_range(field, getattr(sampling, field), allowed)
    _check_size("logit_bias", len(sampling.logit_bias), MAX_LOGIT_BIASES)
    _check_ids("logit_bias", tuple(token_id for token_id, _ in sampling.logit_bias), vocab_size)
    for _, bias in sampling.logit_bias:
        _check_range("logit_bias", bias, LOGIT_BIAS)
    _check_size("stop_token_ids", len(sampling.stop_token_ids), MAX_STOP_TOKEN_IDS)
    _check_ids("stop_token_ids", sampling.stop_token_ids, vocab_size)


def _check_words(request: GatewayRequest) -> None:
    stops = request.sampling.stop
    _check_size("stop", len(stops), MAX_STOPS)
    if any(not stop for stop in stops):
        raise InvalidRequestError("'stop' must not have an empty text.", "stop")
    if any(len(stop) > MAX_STOP_CHARS for stop in stops):
        raise InvalidRequestError(f"A text in 'stop' may have at most {MAX_STOP_CHARS} characters.", "stop")
    _check_size("bad_words", len(request.bad_words) + len(request.sampling.bad_words), MAX_BAD_WORDS)
    if any(not word.strip() for word in request.bad_words) or any(not ids for ids in request.sampling.bad_words):
        raise InvalidRequestError("'bad_words' must not have an empty entry.", "bad_words")


def check_bad_words(bad_words: tuple[tuple[int, ...], ...], vocab_size: int) -> None:
    """Raise InvalidRequestError unless every entry, as token ids, is usable."""
    for token_ids in bad_words:
        _check_size("bad_words", len(token_ids), MAX_BAD_WORD_TOKENS)
        _check_ids("bad_words", token_ids, vocab_size)
