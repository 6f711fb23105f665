"""Errors in OpenAI's shape."""

import logging
import math
from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from paceline.errors import (
    ContextLengthExceededError,
    InvalidRequestError,
    OverloadedError,
    PacelineError,
    UnauthenticatedError,
)

logger = logging.getLogger(__name__)

_CLIENT_CLOSED_REQUEST = 499  # for access logs, as nginx has it
_INTERNAL = "The gateway failed. Its log has the details, under the request id of the x-request-id header."


def error_body(message: str, *, kind: str, code: str, param: str | None = None) -> dict[str, Any]:
    """``{"error": {...}}``; ``code`` is stable and machine-readable."""
    return {"error": {"message": message, "type": kind, "param": param, "code": code}}


def body_of(error: PacelineError, prompt_field: str | None = None) -> dict[str, Any]:
    """The body for an error of the tree. ``prompt_field`` is what this endpoint calls the prompt."""
    param = error.param
    if isinstance(error, ContextLengthExceededError) and prompt_field is not None:
        param = prompt_field
    return error_body(str(error), kind=_kind(error), code=error.reason.lower(), param=param)


def response_of(error: PacelineError, prompt_field: str | None = None) -> JSONResponse:
    """The response for an error that came before the first byte."""
    return JSONResponse(body_of(error, prompt_field), status_code=error.http_status, headers=_headers(error))


def internal_error_body() -> dict[str, Any]:
    """The body for an error that nobody planned; it says nothing about the inside."""
    return error_body(_INTERNAL, kind="server_error", code="internal")


async def on_paceline_error(_: Request, error: Exception) -> JSONResponse:
    """Exception handler of the app for the tree."""
    return response_of(error if isinstance(error, PacelineError) else PacelineError())


async def on_http_error(request: Request, error: Exception) -> JSONResponse:
    """Exception handler of the app for unknown paths, wrong methods and the like."""
    status = getattr(error, "status_code", 500)
    messages = {
        404: f"There is no {request.url.path[:200]}.",
        405: f"{request.method} does not work on {request.url.path[:200]}.",
    }
    return JSONResponse(
        error_body(
            messages.get(status, "The request cannot be handled."),
            kind="invalid_request_error" if status < 500 else "server_error",
            code={404: "not_found", 405: "method_not_allowed"}.get(status, "http_error"),
        ),
        status_code=status,
        headers=getattr(error, "headers", None),
    )


async def on_unexpected_error(_request: Request, _error: Exception) -> JSONResponse:
    """Exception handler of the app for everything else; the server logs the trace."""
    return JSONResponse(internal_error_body(), status_code=500)


async def on_disconnect(request: Request, _error: Exception) -> Response:
    """Exception handler of the app for a client that went away before its request was there; nobody reads this."""
    logger.info("%s: the client has gone before its request was complete", request.url.path[:200])
    return Response(status_code=_CLIENT_CLOSED_REQUEST)


def _kind(error: PacelineError) -> str:
    if isinstance(error, UnauthenticatedError):
        return "authentication_error"
    if error.http_status < 500 or isinstance(error, InvalidRequestError):
        return "invalid_request_error"
    return "server_error"


def _headers(error: PacelineError) -> dict[str, str]:
    if isinstance(error, OverloadedError):
        return {"retry-after": str(max(1, math.ceil(error.retry_after_s)))}
    return {"retry-after": "1"} if error.retryable else {}
