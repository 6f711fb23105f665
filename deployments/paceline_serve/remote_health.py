"""Whether a deployment elsewhere answers, as far as that can be seen from here."""

import time
from enum import Enum
from urllib.parse import urlsplit

import httpx

from paceline.errors import SetupError
from paceline.rpc.loopback import is_loopback

_READY_WITHIN_S = 600.0
_REACHED_WITHIN_S = 10.0  # proxies listen before the application runs
_REQUEST_WITHIN_S = 5.0
_POLL_S = 1.0


class Health(Enum):
    """What can be said."""

    READY = "ready"  # a real token has been generated
    UNREACHABLE = "unreachable"  # the port cannot be dialled from here
    REFUSED = "refused"  # the gateway answers callers on its own machine only


def wait_healthy(url: str) -> Health:
    """Wait until the gateway at ``url`` is ready. Raises SetupError if it can be reached but does not become so."""
    started = time.monotonic()
    while time.monotonic() - started < _READY_WITHIN_S:
        status = _status(url)
        if status == httpx.codes.OK:
            return Health.READY
        if status == httpx.codes.UNAUTHORIZED:
            return Health.REFUSED
        if status is None and time.monotonic() - started > _REACHED_WITHIN_S:
            return Health.UNREACHABLE
        time.sleep(_POLL_S)
    raise SetupError(f"The application runs, but {url}/health was not ready after {_READY_WITHIN_S:g} s.")


def _status(url: str) -> int | None:
    try:
        return httpx.get(
            f"{url}/health", timeout=_REQUEST_WITHIN_S, trust_env=not is_loopback(urlsplit(url).hostname or "")
        ).status_code
    except httpx.HTTPError:
        return None
