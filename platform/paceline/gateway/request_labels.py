"""Takes the client's request id, or names the request, and says it on every response."""

from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from paceline.gateway.gateway_request import clean_label, new_request_id

HEADER = "x-request-id"
STATE_KEY = "request_label"


class RequestLabels:
    """ASGI middleware. The label is ``scope["state"]["request_label"]``; it is never used as a key."""

    def __init__(self, app: ASGIApp, *, echo: bool = True) -> None:
        """``echo``: set the response header; false where a server in front of the app does so itself."""
        self._app = app
        self._echo = echo

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle one ASGI connection."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        label = clean_label(Headers(scope=scope).get(HEADER, "")) or new_request_id()
        scope.setdefault("state", {})[STATE_KEY] = label

        async def send_labelled(message: Message) -> None:
            if self._echo and message["type"] == "http.response.start":
                MutableHeaders(scope=message)[HEADER] = label
            await send(message)

        await self._app(scope, receive, send_labelled)
