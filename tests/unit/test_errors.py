import inspect
import pickle

import pytest

from paceline.cli.reference import raised_errors
from paceline.errors import PacelineError

_EXAMPLES = {int: 7, float: 1.5, str: "text", tuple[str, ...]: ("a", "b")}
_ERRORS = sorted(raised_errors(), key=lambda error: error.__name__)


def _example(error: type[PacelineError]) -> PacelineError:
    parameters = inspect.signature(error).parameters.values()
    return error(*[_EXAMPLES.get(parameter.annotation, "text") for parameter in parameters])


@pytest.mark.parametrize("error", _ERRORS, ids=lambda error: error.__name__)
def test_errors_survive_pickling(error):
    """Class, sentence, field and arguments are the same after a trip between processes."""
    before = _example(error)

    after = pickle.loads(pickle.dumps(before))  # noqa: S301  # bytes of our own

    assert type(after) is error
    assert str(after) == str(before)
    assert after.args == before.args
    assert after.param == before.param


@pytest.mark.parametrize("error", _ERRORS, ids=lambda error: error.__name__)
def test_each_error_can_be_mapped(error):
    """Each error has a reason, an HTTP status that fits its branch and the name of a gRPC code."""
    import grpc  # noqa: PLC0415  # only to know the names of the codes

    assert error.reason.isupper()
    assert error.reason != PacelineError.reason
    assert 400 <= error.http_status <= 599
    assert error.grpc_code in grpc.StatusCode.__members__
    assert (error.__doc__ or "").strip()


def test_reasons_are_unique():
    """A reason names one class, so that a client can tell errors apart."""
    reasons = [error.reason for error in _ERRORS]

    assert len(set(reasons)) == len(reasons)
