import grpc
import pytest
from grpc import aio

from paceline import errors
from paceline.rpc.auth import call_metadata
from paceline.rpc.options import channel_options
from paceline.rpc.status import error_from_rpc
from peers import PEER, TOKEN, serving

ERRORS = [
    (errors.InvalidRequestError("top_p must be above 0.", "top_p"), grpc.StatusCode.INVALID_ARGUMENT),
    (errors.ContextLengthExceededError(10, 20, 16), grpc.StatusCode.INVALID_ARGUMENT),
    (errors.ModelNotFoundError("m", ("a",)), grpc.StatusCode.NOT_FOUND),
    (errors.OverloadedError("The queue", 2.0), grpc.StatusCode.RESOURCE_EXHAUSTED),
    (errors.TargetUnavailableError("gone"), grpc.StatusCode.UNAVAILABLE),
    (errors.LinkRefusedError("group", "a", "b"), grpc.StatusCode.FAILED_PRECONDITION),
    (errors.DeadlineExceededError(3.0), grpc.StatusCode.DEADLINE_EXCEEDED),
    (errors.StreamGapError(1, 2), grpc.StatusCode.DATA_LOSS),
    (errors.EngineFailedError("boom"), grpc.StatusCode.INTERNAL),
]


class Failing:
    """Raises one error in calls of all four kinds, before or after a first message."""

    def __init__(self, error: Exception) -> None:
        self._error = error

    def add_to(self, server) -> None:
        handlers = {
            "UnaryUnary": grpc.unary_unary_rpc_method_handler(self._fail),
            "UnaryStream": grpc.unary_stream_rpc_method_handler(self._fail),
            "StreamUnary": grpc.stream_unary_rpc_method_handler(self._fail),
            "StreamStream": grpc.stream_stream_rpc_method_handler(self._fail),
            "Late": grpc.unary_stream_rpc_method_handler(self._fail_late),
        }
        server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("t.T", handlers),))

    async def _fail(self, _request, _context):
        raise self._error

    async def _fail_late(self, _request, context):
        await context.write(b"first")
        raise self._error


async def fail(error: Exception, kind: str) -> aio.AioRpcError:
    """The status that a caller sees when a handler of this kind raises ``error``."""
    channel_of = aio.insecure_channel
    async with serving(Failing(error)) as server, channel_of(server.address, options=channel_options(PEER)) as channel:
        with pytest.raises(aio.AioRpcError) as caught:
            await _call(channel, kind)
    return caught.value


async def _call(channel: aio.Channel, kind: str) -> None:
    method, metadata = f"/t.T/{kind}", call_metadata(TOKEN)
    match kind:
        case "UnaryUnary":
            await channel.unary_unary(method)(b"", metadata=metadata)
        case "StreamUnary":
            await channel.stream_unary(method)(iter([b""]), metadata=metadata)
        case "StreamStream":
            await channel.stream_stream(method)(iter([b""]), metadata=metadata).read()
        case _:
            async for _ in channel.unary_stream(method)(b"", metadata=metadata):
                pass


@pytest.mark.parametrize(("error", "code"), ERRORS, ids=lambda value: getattr(value, "reason", ""))
@pytest.mark.parametrize("kind", ["UnaryUnary", "Late"])
async def test_each_error_has_its_code_and_short_details(error, code, kind):
    """Unary calls and streams that have begun end with the error's own code, reason and sentence."""
    seen = await fail(error, kind)
    assert seen.code() is code
    assert seen.details() == f"{error.reason}: {error}"
    assert type(error_from_rpc(seen)) is type(error)


@pytest.mark.parametrize("kind", ["UnaryUnary", "UnaryStream", "StreamUnary", "StreamStream", "Late"])
async def test_unexpected_exception_tells_the_caller_nothing(kind, caplog):
    """A bug is INTERNAL without text or trace of the exception; the log has both."""
    seen = await fail(ValueError("a secret"), kind)
    assert seen.code() is grpc.StatusCode.INTERNAL
    assert "secret" not in (seen.details() or "")
    assert "Traceback" not in (seen.details() or "")
    assert "a secret" in caplog.text


async def test_retryable_codes_only_for_retryable_faults():
    """UNAVAILABLE and RESOURCE_EXHAUSTED mean that another try makes sense, no other code of ours does."""
    for error, code in ERRORS:
        retryable_code = code in (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.RESOURCE_EXHAUSTED)
        if retryable_code:
            assert error.retryable
