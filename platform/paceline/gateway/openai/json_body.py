"""From the bytes of a request to a checked model, with OpenAI's kind of error for everything else."""

import json
from collections.abc import Mapping
from typing import Any, NoReturn, TypeVar

from pydantic import BaseModel, ConfigDict, ValidationError, model_validator

from paceline.errors import InvalidRequestError
from paceline.gateway.openai.fields import FieldRule, honoured_fields

_MAX_PROBLEMS = 3  # sentences of one error message


class RequestModel(BaseModel):
    """Base of request models: exact types, no unknown keys, finite numbers, null like absent."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, allow_inf_nan=False)

    @model_validator(mode="before")
    @classmethod
    def _drop_nulls(cls, value: Any) -> Any:
        """Null equals absent."""
        if not isinstance(value, dict):
            return value
        return {name: part for name, part in value.items() if part is not None}


Model = TypeVar("Model", bound=RequestModel)


def parse_body(body: bytes, model: type[Model], table: Mapping[str, FieldRule]) -> Model:
    """Read and check a request body. Raises InvalidRequestError or UnsupportedFeatureError."""
    fields = honoured_fields(_load_object(body), table)
    try:
        return model.model_validate(fields)
    except ValidationError as error:
        raise _as_invalid_request(error) from None  # the original would carry the values into logs


def _load_object(body: bytes) -> dict[str, Any]:
    try:
        text = body.decode("utf-8")
    except UnicodeDecodeError as error:
        raise InvalidRequestError(f"The body is not valid UTF-8 (byte {error.start}).") from None
    try:
        value = json.loads(text, parse_constant=_refuse_constant)
    except RecursionError:
        raise InvalidRequestError("The body is nested too deeply.") from None
    except json.JSONDecodeError as error:
        raise InvalidRequestError(
            f"The body is not valid JSON: {error.msg}, line {error.lineno} column {error.colno}."
        ) from None
    except ValueError:
        raise InvalidRequestError("The body is not valid JSON: a number in it cannot be read.") from None
    if not isinstance(value, dict):
        raise InvalidRequestError("The body must be a JSON object.")
    if "\\ud" in text.lower():
        _check_surrogates(value)
    return value


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(name)


def _check_surrogates(value: Any) -> None:
    """Refuse half a surrogate pair: such text exists in no encoding."""
    try:
        json.dumps(value, ensure_ascii=False).encode("utf-8")
    except UnicodeEncodeError:
        raise InvalidRequestError("A text in the body has half a surrogate pair.") from None


def _as_invalid_request(error: ValidationError) -> InvalidRequestError:
    """Problems of the first field at fault, without the values that were sent."""
    problems = error.errors(include_url=False, include_context=False, include_input=False)
    paths = [field_path(problem["loc"]) for problem in problems]
    sentences = [problem["msg"] for problem, path in zip(problems, paths, strict=True) if path == paths[0]]
    said = "; or ".join(dict.fromkeys(sentences[:_MAX_PROBLEMS]))
    return InvalidRequestError(f"'{paths[0]}': {said}.", paths[0])


def field_path(location: tuple[int | str, ...]) -> str:
    """A path such as "messages[0].content"; names of types, which pydantic adds for unions, are left out."""
    path = ""
    for part in location:
        if isinstance(part, int):
            path += f"[{part}]"
        elif part.isidentifier() and part not in _TYPE_NAMES:
            path += f".{part}" if path else part
        else:
            break
    return path


_TYPE_NAMES = frozenset({"str", "int", "float", "bool"})
