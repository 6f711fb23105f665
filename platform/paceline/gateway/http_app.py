"""The REST door: routes, and what each of them reads and sends."""

import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from fastapi import FastAPI
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response

from paceline.errors import PacelineError
from paceline.gateway.body_reader import read_body
from paceline.gateway.generation_response import Framing, GenerationResponse
from paceline.gateway.http_errors import (
    error_body,
    on_disconnect,
    on_http_error,
    on_paceline_error,
    on_unexpected_error,
)
from paceline.gateway.model_list import model_entry, model_list
from paceline.gateway.openai.chat_request import ChatCompletionRequest
from paceline.gateway.openai.completion_request import CompletionRequest
from paceline.gateway.openai.dialect import ChatDialect, CompletionDialect, Dialect
from paceline.gateway.openai.fields import CHAT_FIELDS, COMPLETION_FIELDS, FieldRule
from paceline.gateway.openai.json_body import parse_body
from paceline.gateway.peer_rule import LoopbackOnly
from paceline.gateway.request_labels import STATE_KEY, RequestLabels
from paceline.gateway.service import GatewayService


def build_app(
    service_provider: Callable[[], GatewayService], *, loopback_only: bool = True, echo_request_id: bool = True
) -> FastAPI:
    """The app. ``service_provider`` is called per request, so the app can be built before the service.

    ``loopback_only``: callers on other machines get 401. ``echo_request_id``: responses carry x-request-id;
    false where the server in front of the app sets that header itself.
    """
    app = FastAPI(title="Paceline", docs_url=None, redoc_url=None, openapi_url=None)
    if loopback_only:
        app.add_middleware(LoopbackOnly)
    app.add_middleware(RequestLabels, echo=echo_request_id)  # the last one added is the outermost
    app.add_exception_handler(PacelineError, on_paceline_error)
    app.add_exception_handler(HTTPException, on_http_error)
    app.add_exception_handler(ClientDisconnect, on_disconnect)
    app.add_exception_handler(Exception, on_unexpected_error)
    _add_generation_routes(app, service_provider)
    _add_model_routes(app, service_provider)
    _add_health_routes(app, service_provider)
    return app


def _add_generation_routes(app: FastAPI, service_provider: Callable[[], GatewayService]) -> None:
    @app.post("/v1/chat/completions")
    async def chat_completions(request: Request) -> Response:
        return await _generation(service_provider(), request, ChatCompletionRequest, CHAT_FIELDS, ChatDialect())

    @app.post("/v1/completions")
    async def completions(request: Request) -> Response:
        return await _generation(service_provider(), request, CompletionRequest, COMPLETION_FIELDS, CompletionDialect())


async def _generation(
    service: GatewayService,
    request: Request,
    model: type[ChatCompletionRequest] | type[CompletionRequest],
    table: Mapping[str, FieldRule],
    dialect: Dialect,
) -> Response:
    started_s = time.monotonic()
    try:
        body = await read_body(request, limit_bytes=service.max_body_bytes, timeout_s=service.request_timeout_s)
        fields = parse_body(body, model, table)
        framing = Framing(fields.stream, fields.include_usage())
        label, traceparent = getattr(request.state, STATE_KEY), request.headers.get("traceparent", "")
        gateway_request = fields.to_gateway_request(label=label, traceparent=traceparent)
    except PacelineError as error:
        service.refused(error, "http")
        raise
    gateway_request = replace(gateway_request, upload_s=time.monotonic() - started_s)
    return GenerationResponse(service, gateway_request, dialect=dialect, framing=framing)


def _add_model_routes(app: FastAPI, service_provider: Callable[[], GatewayService]) -> None:
    created = int(time.time())

    @app.get("/v1/models")
    async def models() -> dict[str, Any]:
        return model_list(service_provider(), created)

    @app.get("/v1/models/{name:path}")
    async def model(name: str) -> dict[str, Any]:
        return model_entry(service_provider(), name, created)


def _add_health_routes(app: FastAPI, service_provider: Callable[[], GatewayService]) -> None:
    @app.get("/health")
    async def health() -> Response:
        reason = service_provider().not_ready_reason()
        if reason is None:
            return JSONResponse({"status": "ready"})
        body = error_body(f"Not ready: {reason}.", kind="server_error", code="not_ready")
        return JSONResponse(body, status_code=503, headers={"retry-after": "1"})

    @app.get("/livez")
    async def livez() -> dict[str, str]:
        return {"status": "alive"}
