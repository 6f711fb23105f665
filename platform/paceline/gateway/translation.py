"""From a request at the door to a request for an engine: defaults, token ids, context limits."""

import secrets
from dataclasses import dataclass, replace

from paceline.core.model_identity import ModelIdentity
from paceline.core.sampling_params import SamplingParams
from paceline.errors import ContextLengthExceededError, InvalidRequestError, ModelNotFoundError
from paceline.gateway.gateway_request import GatewayRequest
from paceline.gateway.request_checks import GREEDY_BELOW, check_bad_words, check_request
from paceline.text.chat import ChatMessage
from paceline.text.tokenizer import TextTokenizer

_UINT64 = (1 << 64) - 1
_DRAWN_SEED_BITS = 53  # a drawn seed is returned as JSON, where many readers keep 53 bits of an integer


@dataclass(frozen=True, slots=True)
class Translated:
    """The parts of a request that do not depend on the moment."""

    prompt_token_ids: tuple[int, ...]
    sampling: SamplingParams
    seed: int  # unsigned 64-bit


def translate(
    request: GatewayRequest,
    *,
    tokenizer: TextTokenizer,
    identity: ModelIdentity,
    limit_tokens: int,
    default_max_tokens: int | None,
) -> Translated:
    """Check and tokenise a request. ``limit_tokens`` bounds prompt plus output of one choice.

    A request without max_tokens gets ``default_max_tokens``, or what the context leaves if that is less or None.

    Raises InvalidRequestError, ModelNotFoundError or ContextLengthExceededError.
    """
    check_model(request.model, identity)
    check_request(request, identity.vocabulary.size)
    limit = min(identity.context_length, limit_tokens)
    prompt_ids = _tokenise(request, tokenizer, limit)
    sampling = replace(
        request.sampling,
        max_tokens=_max_tokens(request.max_tokens, len(prompt_ids), limit, default=default_max_tokens),
        bad_words=_bad_words(request, tokenizer, identity.vocabulary.size),
        temperature=0.0 if request.sampling.temperature < GREEDY_BELOW else request.sampling.temperature,
    )
    if sampling.min_tokens > sampling.max_tokens:
        raise InvalidRequestError(
            f"'min_tokens' is {sampling.min_tokens}, but at most {sampling.max_tokens} tokens can be generated.",
            "min_tokens",
        )
    return Translated(prompt_ids, sampling, _seed(request.seed))


def check_model(model: str | None, identity: ModelIdentity) -> None:
    """Raise ModelNotFoundError if the request names another model than the one served."""
    if model and model != identity.name:
        raise ModelNotFoundError(model[:200], (identity.name,))


def _seed(wanted: int | None) -> int:
    return secrets.randbits(_DRAWN_SEED_BITS) if wanted is None else wanted & _UINT64


def _tokenise(request: GatewayRequest, tokenizer: TextTokenizer, limit: int) -> tuple[int, ...]:
    prompt = request.prompt
    if isinstance(prompt, str):
        _check_length(prompt, request, tokenizer, limit)
        token_ids = tokenizer.encode(prompt)
    elif request.prompt_is_chat:
        text = tokenizer.render([item for item in prompt if isinstance(item, ChatMessage)])
        _check_length(text, request, tokenizer, limit)
        token_ids = tokenizer.encode_fragment(text)  # the template prints the special tokens that the model wants
    else:
        token_ids = tuple(item for item in prompt if isinstance(item, int))
    if not token_ids:
        raise InvalidRequestError("The prompt has no tokens.", "messages" if request.prompt_is_chat else "prompt")
    return token_ids


def _check_length(text: str, request: GatewayRequest, tokenizer: TextTokenizer, limit: int) -> None:
    """Refuse what cannot fit before the work of tokenising it, which others would wait for."""
    if (least := tokenizer.least_tokens(text)) > limit:
        raise ContextLengthExceededError(least, request.max_tokens or 1, limit)


def _max_tokens(wanted: int | None, prompt_tokens: int, limit: int, *, default: int | None) -> int:
    if prompt_tokens + (wanted or 1) > limit:
        raise ContextLengthExceededError(prompt_tokens, wanted or 1, limit)
    return wanted or min(default or limit, limit - prompt_tokens)


def _bad_words(request: GatewayRequest, tokenizer: TextTokenizer, vocab_size: int) -> tuple[tuple[int, ...], ...]:
    """Each word as ids, at the start of a text and after a space: most vocabularies tell these apart."""
    spellings = [spelling for word in request.bad_words for spelling in (word, f" {word.lstrip()}")]
    found = request.sampling.bad_words + tuple(tokenizer.encode_fragment(spelling) for spelling in spellings)
    check_bad_words(found, vocab_size)
    return tuple(dict.fromkeys(found))
