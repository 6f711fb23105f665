"""Why an application does not start, in one sentence, from what Ray Serve says about it."""

import re
from collections.abc import Mapping
from typing import Any

_OURS = re.compile(r"paceline\.errors\.\w+: (.+)")
_MAX_CHARS = 600


def failure_of(application: Mapping[str, Any]) -> str | None:
    """The sentence, or None while there is no failure. ``application`` is an entry of Serve's details.

    A replica that refuses to start is tried again by Ray Serve; its first refusal with an error of ours
    counts at once, because the next try would say the same.
    """
    messages = [deployment.get("message", "") for deployment in application.get("deployments", {}).values()]
    for message in messages:
        if found := _OURS.search(message):
            return found.group(1)[:_MAX_CHARS]
    if application.get("status") == "DEPLOY_FAILED":
        texts = [*filter(None, messages), application.get("message", "")]
        return _last_line(texts[0])
    return None


def notes_of(application: Mapping[str, Any]) -> list[str]:
    """What Ray Serve says about deployments that are not as they should be yet, a sentence or two each."""
    unfinished = (
        deployment
        for deployment in application.get("deployments", {}).values()
        if deployment.get("status") != "HEALTHY" and deployment.get("message")
    )
    return [_last_line(deployment["message"]) for deployment in unfinished]


def _last_line(message: str) -> str:
    """The end of a stack trace; the trace itself is in Ray's logs."""
    lines = [line.strip() for line in message.splitlines() if line.strip()]
    return (lines[-1] if lines else "the application failed to deploy")[:_MAX_CHARS]
