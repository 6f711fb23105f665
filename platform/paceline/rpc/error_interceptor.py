"""Gives every error that leaves a handler its status: ours by the tree, all others as a bare INTERNAL."""

import asyncio
import functools
import inspect
import logging
from collections.abc import Awaitable, Callable
from typing import Any, TypeAlias

import grpc
from grpc.aio import ServerInterceptor, ServicerContext

from paceline.errors import PacelineError
from paceline.rpc.status import abort_with, cancelled_from_within

logger = logging.getLogger(__name__)

Handler: TypeAlias = "grpc.RpcMethodHandler[Any, Any]"  # generic in the stubs only


class ErrorInterceptor(ServerInterceptor):  # type: ignore[type-arg]  # not generic at run time
    """Wraps handlers that are coroutines (streams write through their context).

    Handlers that are async generators pass unwrapped: after a cancelled write nobody closes them
    before they are collected, so ours are not written that way.
    """

    async def intercept_service(
        self,
        continuation: Callable[[grpc.HandlerCallDetails], Awaitable[Handler]],
        handler_call_details: grpc.HandlerCallDetails,
    ) -> Handler:
        """Return the method's handler, wrapped."""
        handler = await continuation(handler_call_details)
        if handler is None:
            return handler
        wrap = functools.partial(_wrap, method=handler_call_details.method)
        serializers = {
            "request_deserializer": handler.request_deserializer,
            "response_serializer": handler.response_serializer,
        }
        if handler.unary_unary:
            return grpc.unary_unary_rpc_method_handler(wrap(handler.unary_unary), **serializers)
        if handler.unary_stream:
            return grpc.unary_stream_rpc_method_handler(wrap(handler.unary_stream), **serializers)
        if handler.stream_unary:
            return grpc.stream_unary_rpc_method_handler(wrap(handler.stream_unary), **serializers)
        return grpc.stream_stream_rpc_method_handler(wrap(handler.stream_stream), **serializers)


def _wrap(behaviour: Any, *, method: str) -> Any:
    if not inspect.iscoroutinefunction(behaviour):
        return behaviour

    @functools.wraps(behaviour)
    async def guarded(request: Any, context: ServicerContext[Any, Any]) -> Any:
        try:
            return await behaviour(request, context)
        except PacelineError as error:
            await abort_with(context, error)
        except grpc.aio.AbortError:
            raise
        except asyncio.CancelledError:
            if cancelled_from_within():  # gRPC would send no status at all, and the caller would wait for ever
                logger.warning("%s was ended inside the replica", method)
                await context.abort(grpc.StatusCode.UNAVAILABLE, "the call was ended inside the replica")
            raise
        except Exception:  # the border of the process: the caller gets a status, the log gets the trace
            logger.exception("%s failed", method)
            await abort_with(context, PacelineError("The call failed inside the replica; see its log."))

    return guarded
