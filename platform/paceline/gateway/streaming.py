"""Server-sent events, as OpenAI frames them.

https://html.spec.whatwg.org/multipage/server-sent-events.html
"""

import json
from typing import Any

MEDIA_TYPE = "text/event-stream; charset=utf-8"
HEADERS = {
    "content-type": MEDIA_TYPE,
    "cache-control": "no-cache",
    "x-accel-buffering": "no",  # a proxy that buffers would hold tokens back
}
DONE = b"data: [DONE]\n\n"


def event(data: dict[str, Any]) -> bytes:
    """One event; JSON has no raw line breaks, so one data line is enough."""
    return b"data: " + json.dumps(data, ensure_ascii=False, separators=(",", ":")).encode("utf-8") + b"\n\n"
