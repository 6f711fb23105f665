"""Bearer tokens between replicas: each replica makes one at start and publishes it to its peers.

Every call is checked, health included, also where the connection is mutual TLS.
"""

import hmac
import secrets
from collections.abc import Awaitable, Callable
from typing import Any, TypeAlias

import grpc
from grpc.aio import ServerInterceptor, ServicerContext

from paceline.errors import UnauthenticatedError
from paceline.rpc.status import abort_with

Handler: TypeAlias = "grpc.RpcMethodHandler[Any, Any]"  # generic in the stubs only

_HEADER = "authorization"
_EXPECTED = "the bearer token that the replica publishes in its metadata"


def new_token() -> str:
    """A fresh token of 256 random bits."""
    return secrets.token_urlsafe(32)


def call_metadata(token: str) -> tuple[tuple[str, str], ...]:
    """Metadata that opens a replica to a call."""
    return ((_HEADER, f"Bearer {token}"),)


class TokenInterceptor(ServerInterceptor):  # type: ignore[type-arg]  # not generic at run time
    """Ends every call without the token with UNAUTHENTICATED, whatever its kind."""

    def __init__(self, token: str) -> None:
        self._expected = f"Bearer {token}".encode()

    async def intercept_service(
        self,
        continuation: Callable[[grpc.HandlerCallDetails], Awaitable[Handler]],
        handler_call_details: grpc.HandlerCallDetails,
    ) -> Handler:
        """Return the method's handler, or one that refuses the call."""
        handler = await continuation(handler_call_details)
        if self._admits(handler_call_details):
            return handler
        return _refusing(handler)

    def _admits(self, details: grpc.HandlerCallDetails) -> bool:
        given = [value for key, value in details.invocation_metadata or () if key == _HEADER]
        if len(given) != 1:
            return False
        value = given[0]
        return hmac.compare_digest(value.encode() if isinstance(value, str) else value, self._expected)


async def _refuse(_request: object, context: ServicerContext[Any, Any]) -> None:
    await abort_with(context, UnauthenticatedError(_EXPECTED))


def _refusing(handler: "Handler | None") -> Handler:
    # The refusal must have the kind of the call; an unknown method (no handler) may have any.
    kinds = {
        (False, False): grpc.unary_unary_rpc_method_handler,
        (False, True): grpc.unary_stream_rpc_method_handler,
        (True, False): grpc.stream_unary_rpc_method_handler,
        (True, True): grpc.stream_stream_rpc_method_handler,
    }
    kind = (handler.request_streaming, handler.response_streaming) if handler is not None else (True, True)
    return kinds[kind](_refuse)
