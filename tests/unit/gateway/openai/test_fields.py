"""Every field of both request bodies, one by one."""

import json

import pytest
from openai.types.chat.completion_create_params import CompletionCreateParamsBase as ChatParams
from openai.types.completion_create_params import CompletionCreateParamsBase as CompletionParams

from paceline.errors import InvalidRequestError, UnsupportedFeatureError
from paceline.gateway.openai.chat_request import ChatCompletionRequest
from paceline.gateway.openai.completion_request import CompletionRequest
from paceline.gateway.openai.fields import CHAT_FIELDS, COMPLETION_FIELDS, Treatment
from paceline.gateway.openai.json_body import parse_body

MESSAGES = [{"role": "user", "content": "hi"}]
VALID = {
    "messages": MESSAGES,
    "prompt": "hi",
    "model": "tiny",
    "temperature": 0.5,
    "top_p": 0.5,
    "top_k": 5,
    "min_p": 0.1,
    "repetition_penalty": 1.1,
    "presence_penalty": 0.5,
    "frequency_penalty": -0.5,
    "logit_bias": {"5": 1.5},
    "n": 2,
    "stop": ["x", "y"],
    "stop_token_ids": [3],
    "bad_words": ["no"],
    "min_tokens": 1,
    "max_tokens": 8,
    "max_completion_tokens": 8,
    "ignore_eos": True,
    "seed": -3,
    "stream": True,
    "stream_options": {"include_usage": True},
    "speculation": {"mode": "on", "drafter": "ngram", "max_draft_tokens": 3},
    "explain": True,
    "priority": "high",
    "top_logprobs": 2,
    "user": "u",
    "metadata": {"k": "v"},
    "service_tier": "auto",
    "safety_identifier": "s",
    "prompt_cache_key": "k",
    "prompt_cache_retention": "24h",
    "prompt_cache_options": {},
}
ASKS_FOR_SOMETHING = {
    "tools": [{"type": "function", "function": {"name": "f"}}],
    "tool_choice": "required",
    "functions": [{"name": "f"}],
    "function_call": {"name": "f"},
    "response_format": {"type": "json_object"},
    "modalities": ["text", "audio"],
    "best_of": 2,
    "echo": True,
    "suffix": "end",
    "store": True,
    "reasoning_effort": "high",
    "verbosity": "low",
    "parallel_tool_calls": "yes",
}
SAMPLES = {"list": ["x", 5], "object": {"type": 5}, "text": "text", "number": 1.5, "bool": True}
_LABELS = {"user", "service_tier", "safety_identifier", "prompt_cache_key", "prompt_cache_retention"}
TAKES = {
    "text": {"model", "stop", "prompt", *_LABELS},
    "number": {"temperature", "top_p", "min_p", "presence_penalty", "frequency_penalty", "repetition_penalty"},
    "bool": {"stream", "ignore_eos", "explain", "parallel_tool_calls"},
    "object": {"logit_bias", "metadata", "prompt_cache_options"},
}
DOORS = {
    "chat": (ChatCompletionRequest, CHAT_FIELDS, {"messages": MESSAGES}),
    "completions": (CompletionRequest, COMPLETION_FIELDS, {"prompt": "hi"}),
}
ROWS = [(door, field) for door, (_, table, _) in DOORS.items() for field in table]


def _parse(door: str, fields: dict):
    model, table, base = DOORS[door]
    return parse_body(json.dumps(base | fields).encode(), model, table)


def _valid(door: str, field: str):
    if field == "logprobs":
        return True if door == "chat" else 3
    return VALID[field]


@pytest.mark.parametrize(("door", "params"), [("chat", ChatParams), ("completions", CompletionParams)])
def test_the_table_has_every_field_of_openai(door, params):
    """No field of the official schema is unknown here, so none is refused as a spelling mistake."""
    assert params.__annotations__.keys() - DOORS[door][1].keys() == set()


@pytest.mark.parametrize("door", DOORS)
def test_the_request_model_reads_exactly_the_honoured_fields(door):
    """A field cannot be called honoured and be dropped, nor be read and called something else."""
    model, table, _ = DOORS[door]
    honoured = {name for name, rule in table.items() if rule.treatment is Treatment.HONOURED}

    assert set(model.model_fields) == honoured


@pytest.mark.parametrize(("door", "field"), ROWS)
def test_null_equals_absent(door, field):
    """null for any field but the prompt gives the same request as leaving it out."""
    if field in DOORS[door][2]:
        with pytest.raises(InvalidRequestError) as caught:
            _parse(door, {field: None})
        assert caught.value.param == field
    else:
        assert _parse(door, {field: None}) == _parse(door, {})


@pytest.mark.parametrize(("door", "field"), ROWS)
def test_a_valid_value_meets_the_table(door, field):
    """An honoured field arrives, one without effect changes nothing, a refused one is named."""
    rule = DOORS[door][1][field]
    if rule.treatment is Treatment.REFUSED:
        with pytest.raises(UnsupportedFeatureError) as caught:
            _parse(door, {field: ASKS_FOR_SOMETHING.get(field, {"any": "thing"})})
        assert caught.value.param == field
        for neutral in rule.neutral:
            assert _parse(door, {field: neutral}) == _parse(door, {})
    elif rule.treatment is Treatment.NO_EFFECT:
        assert _parse(door, {field: _valid(door, field)}) == _parse(door, {})
    else:
        parsed = _parse(door, {field: _valid(door, field)})
        assert field in parsed.model_fields_set
        assert field in DOORS[door][2] or parsed != _parse(door, {})


@pytest.mark.parametrize("value", ["HIGH", "urgent", "", 0])
def test_an_unknown_priority_is_refused(value):
    """It would otherwise be served as a normal one, and nobody would know why it waits."""
    with pytest.raises(InvalidRequestError, match="'high', 'normal' or 'low'") as caught:
        _parse("chat", {"priority": value})
    assert caught.value.param == "priority"


@pytest.mark.parametrize(("door", "field"), ROWS)
@pytest.mark.parametrize("kind", SAMPLES)
def test_a_wrong_type_names_the_field(door, field, kind):
    """A field takes values of its own JSON type; any other is a 400 whose param begins with the field."""
    if field in TAKES.get(kind, ()) or (kind == "bool" and (door, field) == ("chat", "logprobs")):
        _parse(door, {field: SAMPLES[kind]})
        return
    with pytest.raises(InvalidRequestError) as caught:
        _parse(door, {field: SAMPLES[kind]})
    assert caught.value.param is not None
    assert caught.value.param.startswith(field)


def test_an_unknown_field_is_named():
    """A misspelt field is an error, not a silent default."""
    with pytest.raises(InvalidRequestError, match="temprature") as caught:
        _parse("chat", {"temprature": 0})
    assert caught.value.param == "temprature"


def test_one_is_not_true():
    """A neutral value must have the right JSON type."""
    with pytest.raises(UnsupportedFeatureError):
        _parse("completions", {"best_of": True})
