"""Who may use the doors: without API keys, only clients on the same machine, unless the deployment says otherwise."""

from starlette.types import ASGIApp, Receive, Scope, Send

from paceline.errors import UnauthenticatedError
from paceline.gateway.http_errors import response_of
from paceline.rpc.loopback import is_loopback

_EXPECTED = "a client on the same machine; set gateway.allow_remote_clients to serve others"


def check_peer(host: str) -> None:
    """Raise UnauthenticatedError unless the caller is on the same machine."""
    if not is_loopback(host):
        raise UnauthenticatedError(_EXPECTED)


class LoopbackOnly:
    """ASGI middleware that answers every other caller with 401, whatever the path."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle one ASGI connection."""
        if scope["type"] == "http":
            client = scope.get("client")
            try:
                check_peer(client[0] if client else "")
            except UnauthenticatedError as error:
                await response_of(error)(scope, receive, send)
                return
        await self._app(scope, receive, send)
