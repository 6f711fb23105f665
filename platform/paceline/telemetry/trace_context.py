"""W3C Trace Context: the ``traceparent`` field that ties the spans of one request together.

https://www.w3.org/TR/trace-context/#traceparent-header. Only ``traceparent`` is read and written; a header
that breaks the rules counts as absent, so that a client cannot break a request with it.
"""

import re
import secrets
from dataclasses import dataclass

_TRACEPARENT = re.compile(r"([0-9a-f]{2})-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})(-.*)?")
_SAMPLED = 0x01


@dataclass(frozen=True, slots=True)
class TraceContext:
    """One span's place in a trace."""

    trace_id: str  # 32 lower-case hex digits, not all 0
    span_id: str  # 16 lower-case hex digits, not all 0
    sampled: bool

    def child(self) -> "TraceContext":
        """A new span of the same trace."""
        return TraceContext(self.trace_id, _random_hex(8), self.sampled)

    @property
    def traceparent(self) -> str:
        """The header's value for calls made inside this span."""
        return f"00-{self.trace_id}-{self.span_id}-{int(self.sampled):02x}"


def parse_traceparent(header: str) -> TraceContext | None:
    """Read a header; None if it is empty or breaks the rules."""
    match = _TRACEPARENT.fullmatch(header)
    if match is None:
        return None
    version, trace_id, span_id, flags, rest = match.groups()
    if version == "ff" or (version == "00" and rest is not None):
        return None
    if not int(trace_id, 16) or not int(span_id, 16):
        return None
    return TraceContext(trace_id, span_id, bool(int(flags, 16) & _SAMPLED))


def new_trace(*, sampled: bool = False) -> TraceContext:
    """Start a trace with random ids."""
    return TraceContext(_random_hex(16), _random_hex(8), sampled)


def continue_trace(header: str) -> TraceContext:
    """A child of the caller's span, or a new trace where the caller sent none that is valid."""
    caller = parse_traceparent(header)
    return caller.child() if caller else new_trace()


def _random_hex(num_bytes: int) -> str:
    value = secrets.token_hex(num_bytes)
    return value if int(value, 16) else _random_hex(num_bytes)
