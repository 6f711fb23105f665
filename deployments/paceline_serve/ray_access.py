"""Whether a Ray lets this user in, asked before Ray's own client is, which would try for a minute and say much."""

import os
from pathlib import Path

import grpc

from paceline.errors import SetupError
from paceline.rpc.auth import call_metadata

_WITHIN_S = 3.0
_CHECK_ALIVE = "/ray.rpc.NodeInfoGcsService/CheckAlive"  # takes an empty request; a test holds it in place
_TOKEN_FILE = Path(".ray") / "auth_token"


def own_token() -> str | None:
    """The token that this user shows to Ray, found where Ray looks for it; None: tokens are off, or there is none."""
    if os.environ.get("RAY_AUTH_MODE", "token") != "token":
        return None
    if token := os.environ.get("RAY_AUTH_TOKEN"):
        return token
    file = Path(os.environ.get("RAY_AUTH_TOKEN_PATH") or Path.home() / _TOKEN_FILE)
    try:
        return file.read_text().strip() or None
    except OSError:
        return None


def check_access(gcs: str, token: str | None) -> None:
    """Raise SetupError, with what to do, unless the GCS at HOST:PORT answers and takes the token."""
    with grpc.insecure_channel(gcs) as channel:
        try:
            channel.unary_unary(_CHECK_ALIVE, request_serializer=None, response_deserializer=None)(
                b"", metadata=call_metadata(token) if token else (), timeout=_WITHIN_S
            )
        except grpc.RpcError as error:
            raise SetupError(_refusal(gcs, error.code())) from error


def _refusal(gcs: str, code: grpc.StatusCode) -> str:
    match code:
        case grpc.StatusCode.UNAUTHENTICATED:
            return (
                f"The Ray at {gcs} wants another token. Run the command as the user who started Ray, or set "
                "RAY_AUTH_MODE=token and RAY_AUTH_TOKEN."
            )
        case grpc.StatusCode.UNIMPLEMENTED:
            return f"What listens at {gcs} is no Ray."
        case grpc.StatusCode.DEADLINE_EXCEEDED:
            return f"The Ray at {gcs} has not answered for {_WITHIN_S:g} s. Answers that run go on meanwhile."
    return f"No Ray answers at {gcs}."
