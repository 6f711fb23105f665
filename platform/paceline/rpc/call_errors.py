"""What calls to a target replica raise, as errors of ours."""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager

from grpc import aio

from paceline.errors import TargetUnavailableError, UnauthenticatedError
from paceline.rpc.status import cancelled_from_within, error_from_rpc, has_reason

_CLOSED = "the connection was closed"


@contextmanager
def our_errors() -> Iterator[None]:
    """Whatever gRPC raises in the block, as the error that it stands for."""
    try:
        yield
    except aio.AioRpcError as error:
        ours = error_from_rpc(error)
        # The gateway's token is stale because the replica restarted: no fault of the gateway's own client.
        if isinstance(ours, UnauthenticatedError):
            ours = TargetUnavailableError("the replica does not know the gateway's token")
        raise ours from error
    except aio.UsageError as error:
        raise TargetUnavailableError(_CLOSED) from error
    except asyncio.CancelledError:
        if cancelled_from_within():
            raise TargetUnavailableError(_CLOSED) from None
        raise


def is_broken_connection(error: TargetUnavailableError) -> bool:
    """Whether gRPC itself ended the call; False where the replica's own code did, or our end."""
    cause = error.__cause__
    return isinstance(cause, aio.AioRpcError) and not has_reason(cause)
