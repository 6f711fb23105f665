"""The HTTP response to a generation request, streamed or whole."""

import logging
from collections.abc import AsyncIterator
from contextlib import aclosing
from typing import NamedTuple

from starlette.responses import JSONResponse, Response
from starlette.types import Receive, Scope, Send

from paceline.errors import PacelineError
from paceline.gateway import streaming
from paceline.gateway.answer import Answer
from paceline.gateway.disconnect import run_until_disconnect
from paceline.gateway.gateway_request import GatewayRequest
from paceline.gateway.http_errors import body_of, internal_error_body, response_of
from paceline.gateway.openai.answer_bodies import AnswerBodies
from paceline.gateway.openai.dialect import Dialect
from paceline.gateway.service import GatewayService

logger = logging.getLogger(__name__)


class Framing(NamedTuple):
    """How the client wants the answer sent."""

    stream: bool
    include_usage: bool


class GenerationResponse(Response):
    """Runs the request when it is sent.

    The status is decided by the first tokens, or by what went wrong before them; a failure after them is an
    error event, never a normal end. A client that goes away ends the generation, streamed or not.
    """

    def __init__(
        self,
        service: GatewayService,
        request: GatewayRequest,
        *,
        dialect: Dialect,
        framing: Framing,
    ) -> None:
        super().__init__()
        self._service = service
        self._request = request
        self._dialect = dialect
        self._framing = framing

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send the response (ASGI)."""
        finished = await run_until_disconnect(self._respond(scope, receive, send), receive)
        if not finished:
            logger.info("request %s: the client has gone", self._request.request_id)

    async def _respond(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            answer = await self._service.open(self._request)
        except PacelineError as error:
            await response_of(error, self._dialect.prompt_field)(scope, receive, send)
            return
        except Exception:  # the door answers every request, whatever is wrong behind it
            logger.exception("request %s failed", self._request.request_id)
            await JSONResponse(internal_error_body(), status_code=500)(scope, receive, send)
            return
        async with answer:
            bodies = AnswerBodies(answer, self._dialect, self._service.token_texts)
            if self._framing.stream:
                await _send_events(self._events(answer, bodies), send)
            else:
                await (await self._whole(bodies))(scope, receive, send)

    async def _whole(self, bodies: AnswerBodies) -> Response:
        try:
            return JSONResponse(await bodies.whole())
        except PacelineError as error:
            return response_of(error, self._dialect.prompt_field)

    async def _events(self, answer: Answer, bodies: AnswerBodies) -> AsyncIterator[bytes]:
        try:
            async for body in bodies.chunks(include_usage=self._framing.include_usage):
                yield streaming.event(body)
        except PacelineError as error:
            logger.warning("request %s broke off: %s", answer.request_id, error)
            yield streaming.event(body_of(error, self._dialect.prompt_field))
        except Exception:  # the status is out; the client must not take the rest for a whole answer
            logger.exception("request %s broke off", answer.request_id)
            yield streaming.event(internal_error_body())
        yield streaming.DONE


async def _send_events(events: AsyncIterator[bytes], send: Send) -> None:
    headers = [(name.encode("latin-1"), value.encode("latin-1")) for name, value in streaming.HEADERS.items()]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    async with aclosing(events) as stream:  # type: ignore[type-var]
        async for event in stream:
            await send({"type": "http.response.body", "body": event, "more_body": True})
    await send({"type": "http.response.body", "body": b"", "more_body": False})
