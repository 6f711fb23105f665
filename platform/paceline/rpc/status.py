"""The error tree as gRPC statuses, and back.

A status carries the leaf's code, and "REASON: sentence" of at most 1 KB in its details; never a stack
trace. The constructor arguments travel as JSON in a trailer, so that the caller gets the same error.
"""

import asyncio
import json
from collections.abc import Iterator
from typing import Any, NoReturn

import grpc
from grpc.aio import AioRpcError, ServicerContext

from paceline.errors import EngineFailedError, InvalidRequestError, PacelineError, TargetUnavailableError

MAX_DETAILS_BYTES = 1024
ARGS_KEY = "paceline-error-args-bin"
_MAX_ARGS_BYTES = 2048
_TRANSPORT_CODES = frozenset(
    {grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.CANCELLED, grpc.StatusCode.DEADLINE_EXCEEDED}
)


def status_of(error: PacelineError) -> tuple[grpc.StatusCode, str]:
    """Code and details string of an error."""
    return grpc.StatusCode[error.grpc_code], _shorten(f"{error.reason}: {error}")


async def abort_with(context: ServicerContext[Any, Any], error: PacelineError) -> NoReturn:
    """End a call with the error's status."""
    code, details = status_of(error)
    await context.abort(code, details, _encode_args(error))
    raise AssertionError("abort returned")  # it always raises; this tells type checkers so


def error_from_rpc(rpc_error: AioRpcError) -> PacelineError:
    """The error that a call's status stands for.

    A status without a reason of ours comes from gRPC itself: a broken or refused connection becomes
    TargetUnavailableError, a bad argument InvalidRequestError, anything else EngineFailedError.
    """
    reason, _, sentence = (rpc_error.details() or "").partition(": ")
    leaf = _leaves().get(reason)
    if leaf is not None:
        rebuilt = _rebuild(leaf, rpc_error)
        if rebuilt is not None:
            return rebuilt
    known = leaf is not None or reason == PacelineError.reason
    text = _shorten(sentence if known else rpc_error.details() or rpc_error.code().name)
    if rpc_error.code() in _TRANSPORT_CODES:
        return TargetUnavailableError(text)
    if rpc_error.code() is grpc.StatusCode.INVALID_ARGUMENT:
        return InvalidRequestError(text)
    return EngineFailedError(text)


def has_reason(rpc_error: AioRpcError) -> bool:
    """Whether a status carries a reason of ours: the other end's own word, where others are gRPC's."""
    reason = (rpc_error.details() or "").partition(": ")[0]
    return reason == PacelineError.reason or reason in _leaves()


def cancelled_from_within() -> bool:
    """Whether a CancelledError just caught came out of what was awaited, not from a cancel of this task.

    Such a one is an error to report: raised on, it would end a task that nobody meant to end.
    """
    task = asyncio.current_task()
    return task is not None and task.cancelling() == 0


def _encode_args(error: PacelineError) -> tuple[tuple[str, bytes], ...]:
    try:
        encoded = json.dumps(error.args).encode()
    except TypeError:
        return ()
    return ((ARGS_KEY, encoded),) if len(encoded) <= _MAX_ARGS_BYTES else ()


def _rebuild(leaf: type[PacelineError], rpc_error: AioRpcError) -> PacelineError | None:
    trailer: dict[str, str | bytes] = dict(rpc_error.trailing_metadata() or ())  # type: ignore[arg-type]
    if ARGS_KEY not in trailer:
        return None
    try:
        args = json.loads(trailer[ARGS_KEY])
        return leaf(*(tuple(arg) if isinstance(arg, list) else arg for arg in args))
    except (ValueError, TypeError):
        return None  # a peer of another release; the caller falls back to the code


def _leaves() -> dict[str, type[PacelineError]]:
    # A subclass that keeps its parent's reason (InvalidRequestError) is the one that is raised.
    return {cls.reason: cls for cls in _walk(PacelineError) if cls.reason != PacelineError.reason}


def _walk(cls: type[PacelineError]) -> Iterator[type[PacelineError]]:
    yield cls
    for child in cls.__subclasses__():
        yield from _walk(child)


def _shorten(text: str) -> str:
    encoded = text.encode()
    if len(encoded) <= MAX_DETAILS_BYTES:
        return text
    return encoded[: MAX_DETAILS_BYTES - 3].decode(errors="ignore") + "..."
