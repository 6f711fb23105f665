"""What becomes of every field of a request body: honoured, refused or without effect.

A field that would change the answer is never dropped in silence. null equals absent everywhere, and a
refused field may still have the value that turns it off, since clients like to spell out defaults.
"""

from collections.abc import Mapping
from enum import Enum
from types import MappingProxyType
from typing import Any, NamedTuple

from paceline.errors import InvalidRequestError, UnsupportedFeatureError

_MAX_ECHO = 60  # characters of a client's own field name in an error message


class Treatment(Enum):
    """What the gateway does with a field."""

    HONOURED = "honoured"
    REFUSED = "refused"
    NO_EFFECT = "no effect"


class FieldRule(NamedTuple):
    """One row of the table."""

    treatment: Treatment
    hint: str = ""  # refused: what to do; no effect: why it is harmless
    neutral: tuple[Any, ...] = ()  # refused: values that ask for nothing
    kind: type | None = None  # no effect: the type that the field must still have


_HONOURED = FieldRule(Treatment.HONOURED)


def _refused(hint: str, *neutral: Any) -> FieldRule:
    return FieldRule(Treatment.REFUSED, hint, neutral)


def _no_effect(hint: str, kind: type) -> FieldRule:
    return FieldRule(Treatment.NO_EFFECT, hint, (), kind)


_NO_TOOLS = "tool calls are not available; describe the tools in the prompt"
_TEXT_ONLY = "this model reads and writes text only"

_SHARED: dict[str, FieldRule] = {
    **dict.fromkeys(
        (
            "model",
            "temperature",
            "top_p",
            "n",
            "stop",
            "max_tokens",
            "presence_penalty",
            "frequency_penalty",
            "logit_bias",
            "logprobs",
            "seed",
            "stream",
            "stream_options",
            # Beyond OpenAI
            "top_k",
            "min_p",
            "repetition_penalty",
            "min_tokens",
            "stop_token_ids",
            "ignore_eos",
            "bad_words",
            "speculation",
            "explain",
            "priority",
        ),
        _HONOURED,
    ),
    "user": _no_effect("a label for the client's own use", str),
}

CHAT_FIELDS: Mapping[str, FieldRule] = MappingProxyType(
    {
        **_SHARED,
        **dict.fromkeys(("messages", "max_completion_tokens", "top_logprobs"), _HONOURED),
        "metadata": _no_effect("a label for the client's own use", dict),
        "service_tier": _no_effect("there is one tier", str),
        "safety_identifier": _no_effect("a label for the client's own use", str),
        "prompt_cache_key": _no_effect("a hint about caching", str),
        "prompt_cache_retention": _no_effect("a hint about caching", str),
        "prompt_cache_options": _no_effect("a hint about caching", dict),
        "store": _refused("answers are not stored", False),
        "tools": _refused(_NO_TOOLS, []),
        "tool_choice": _refused(_NO_TOOLS, "none", "auto"),
        "parallel_tool_calls": _refused(_NO_TOOLS, True, False),
        "functions": _refused(_NO_TOOLS, []),
        "function_call": _refused(_NO_TOOLS, "none", "auto"),
        "response_format": _refused("only {'type': 'text'} is available", {"type": "text"}),
        "modalities": _refused(_TEXT_ONLY, ["text"]),
        "audio": _refused(_TEXT_ONLY),
        "prediction": _refused("drafts come from the deployment's drafters; see 'speculation'"),
        "web_search_options": _refused("the model has no access to the web"),
        "reasoning_effort": _refused("the model has no such setting", "none"),
        "verbosity": _refused("the model has no such setting", "medium"),
        "moderation": _refused("answers are not moderated"),
    }
)

COMPLETION_FIELDS: Mapping[str, FieldRule] = MappingProxyType(
    {
        **_SHARED,
        "prompt": _HONOURED,
        "echo": _refused("put the prompt in front of the answer yourself", False),
        "suffix": _refused("the model cannot fill in the middle", ""),
        "best_of": _refused("use 'n' and choose among the answers yourself", 1),
    }
)


def honoured_fields(body: Mapping[str, Any], table: Mapping[str, FieldRule]) -> dict[str, Any]:
    """The fields of ``body`` that the request model reads.

    Raises InvalidRequestError for an unknown field or a wrong type, UnsupportedFeatureError for a refused one.
    """
    present = {name: value for name, value in body.items() if value is not None}
    unknown = sorted(name for name in present if name not in table)
    if unknown:
        names = ", ".join(f"'{name[:_MAX_ECHO]}'" for name in unknown[:8])
        raise InvalidRequestError(f"Unknown field: {names}. Remove it or check its spelling.", unknown[0][:_MAX_ECHO])
    for name, value in present.items():
        _check(name, value, table[name])
    return {name: value for name, value in present.items() if table[name].treatment is Treatment.HONOURED}


def _check(name: str, value: Any, rule: FieldRule) -> None:
    if rule.kind is not None and not isinstance(value, rule.kind):
        wanted = "an object" if rule.kind is dict else "a string"
        raise InvalidRequestError(f"'{name}' must be {wanted}.", name)
    if rule.treatment is Treatment.REFUSED and not any(_same(value, neutral) for neutral in rule.neutral):
        raise UnsupportedFeatureError(name, rule.hint)


def _same(value: Any, neutral: Any) -> bool:
    """Equality that tells 1 from true, as JSON does."""
    return type(value) is type(neutral) and bool(value == neutral)
