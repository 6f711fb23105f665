"""Why an application does not start, in one sentence, from what Ray Serve says about it."""

import re
from collections.abc import Collection, Mapping
from typing import Any

_OURS = re.compile(r"paceline\.errors\.\w+: (.+)")
_TRACE = re.compile(r"^Traceback|^\s*File \"|ray::", re.MULTILINE)
_MACHINE = re.compile(r"\(pid=\d+, ip=([^,)\s]+)")
_ONLY_MACHINE = "127.0.0.1"  # of a Ray that has no other
_MAX_CHARS = 600


def failure_of(application: Mapping[str, Any], *, before: Collection[str] = ()) -> str | None:
    """The sentence, or None while there is no failure. ``application`` is an entry of Serve's details.

    A replica that refuses to start is tried again by Ray Serve; its first refusal with an error of ours
    counts at once, because the next try would say the same. ``before`` has the `messages_of` an earlier start,
    which stay until the new one has begun.
    """
    messages = messages_of(application)
    for message in messages:
        if message not in before and (found := _OURS.search(message)):
            return f"{_place_of(message)}{found.group(1)}"[:_MAX_CHARS]
    if application.get("status") == "DEPLOY_FAILED":
        text = [*messages, application.get("message", "")][0]
        return _place_of(text) + last_line(text)
    return None


def messages_of(application: Mapping[str, Any]) -> list[str]:
    """What Ray Serve says about the deployments of an application, with stack traces."""
    return [said for deployment in application.get("deployments", {}).values() if (said := deployment.get("message"))]


def notes_of(application: Mapping[str, Any], *, before: Collection[str] = ()) -> list[str]:
    """What Ray Serve says about deployments that are not as they should be yet, a sentence or two each."""
    unfinished = (item for item in application.get("deployments", {}).values() if item.get("status") != "HEALTHY")
    texts = (item.get("message") for item in unfinished)
    return [_sentences(text) for text in texts if text and text not in before]


def _place_of(message: str) -> str:
    """Where the replica was that failed, for the beginning of a sentence: machines have files of their own."""
    found = _MACHINE.search(message)
    return f"On {found.group(1)}: " if found and found.group(1) != _ONLY_MACHINE else ""


def _sentences(message: str) -> str:
    """A message on one line; of a stack trace its end."""
    return last_line(message) if _TRACE.search(message) else " ".join(message.split())[:_MAX_CHARS]


def last_line(message: str) -> str:
    """The end of a stack trace; the trace itself is in Ray's logs."""
    lines = [line.strip() for line in message.splitlines() if line.strip()]
    return (lines[-1] if lines else "the application failed to deploy")[:_MAX_CHARS]
