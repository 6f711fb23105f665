import grpc
import pytest
from grpc.aio import AioRpcError, Metadata

from paceline import errors
from paceline.rpc import status

EXAMPLES = [
    errors.InvalidRequestError("top_p must be above 0.", "top_p"),
    errors.ContextLengthExceededError(10, 20, 16),
    errors.UnsupportedFeatureError("tools", "tool calls come later"),
    errors.ModelNotFoundError("m", ("a", "b")),
    errors.DrafterGroupNotFoundError("g", ("a",)),
    errors.PayloadTooLargeError(10, 5),
    errors.UnauthenticatedError("a key"),
    errors.OverloadedError("The queue", 2.0),
    errors.TargetUnavailableError("it is gone"),
    errors.TargetLostError("it is gone"),
    errors.TargetLeavingError("it is gone"),
    errors.RequestAbandonedError(2),
    errors.DrafterUnavailableError("g", "it is gone"),
    errors.LinkRefusedError("vocabulary.size", "1", "2"),
    errors.DeadlineExceededError(3.0),
    errors.StreamGapError(3, 5),
    errors.EngineFailedError("out of memory"),
    errors.CacheCorruptionError("free 1 + held 2 != total 4"),
    errors.ServiceUnreachableError("127.0.0.1:1", "refused"),
    errors.AnswerFailedError("OVERLOADED", "full"),
]


def over_the_wire(error: errors.PacelineError) -> AioRpcError:
    code, details = status.status_of(error)
    return AioRpcError(code, Metadata(), Metadata(*status._encode_args(error)), details=details)


@pytest.mark.parametrize("error", EXAMPLES, ids=lambda error: type(error).__name__)
def test_error_survives_the_wire(error):
    """The caller gets the same class, the same arguments and the same sentence."""
    back = status.error_from_rpc(over_the_wire(error))

    assert type(back) is type(error)
    assert back.args == error.args
    assert str(back) == str(error)


def test_every_leaf_that_crosses_processes_has_an_example():
    """No client or server error is left out of the round trip."""
    leaves = {cls for cls in status._leaves().values() if not issubclass(cls, errors.SetupError)}
    assert leaves == {type(error) for error in EXAMPLES}


def test_details_are_short():
    """Details stay within 1 KB, cut between characters, whatever the message holds."""
    code, details = status.status_of(errors.InvalidRequestError("ä" * 5000))

    assert code is grpc.StatusCode.INVALID_ARGUMENT
    assert len(details.encode()) <= status.MAX_DETAILS_BYTES
    assert details.startswith("INVALID_REQUEST: ää")


def test_long_arguments_stay_behind_and_the_reason_still_decides():
    """An error too long for the trailer comes back by its code, with what fits of its sentence."""
    back = status.error_from_rpc(over_the_wire(errors.InvalidRequestError("x" * 5000, "stop")))

    assert isinstance(back, errors.InvalidRequestError)
    assert str(back).startswith("xxx")


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        (grpc.StatusCode.UNAVAILABLE, errors.TargetUnavailableError),
        (grpc.StatusCode.CANCELLED, errors.TargetUnavailableError),
        (grpc.StatusCode.INVALID_ARGUMENT, errors.InvalidRequestError),
        (grpc.StatusCode.INTERNAL, errors.EngineFailedError),
        (grpc.StatusCode.UNKNOWN, errors.EngineFailedError),
    ],
)
def test_status_of_grpc_itself_gets_a_place_in_the_tree(code, kind):
    """A broken connection is retryable, a bug is not a client's fault."""
    assert type(status.error_from_rpc(AioRpcError(code, Metadata(), Metadata(), details="socket closed"))) is kind


def test_trailer_of_another_release_does_no_harm():
    """Arguments that the class does not take are ignored."""
    code, details = status.status_of(errors.StreamGapError(1, 2))
    trailer = Metadata((status.ARGS_KEY, b'["only one"]'))
    back = status.error_from_rpc(AioRpcError(code, Metadata(), trailer, details=details))

    assert isinstance(back, errors.EngineFailedError)
