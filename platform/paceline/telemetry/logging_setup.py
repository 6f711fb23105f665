"""Log lines as text or JSON, each with the id of the request that it belongs to."""

import json
import logging
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from datetime import UTC, datetime
from typing import TextIO

LOGGER_NAMES = ("paceline", "paceline_serve")
_request_id: ContextVar[str] = ContextVar("paceline_request_id", default="")


@contextmanager
def request_logging(request_id: str) -> Iterator[None]:
    """Mark log lines of this thread or task with ``request_id`` while the block runs."""
    token = _request_id.set(request_id)
    try:
        yield
    finally:
        _request_id.reset(token)


class _RequestIdFilter(logging.Filter):
    """Copies the request id of the moment onto the record."""

    def filter(self, record: logging.LogRecord) -> bool:
        record.request_id = _request_id.get()
        return True


class TextFormatter(logging.Formatter):
    """``2026-01-31T12:00:00.000Z INFO paceline.engine [request] message``."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the line; a traceback follows on lines of its own."""
        request_id = getattr(record, "request_id", "")
        marker = f" [{request_id}]" if request_id else ""
        line = f"{_timestamp(record)} {record.levelname} {record.name}{marker} {record.getMessage()}"
        return f"{line}\n{self.formatException(record.exc_info)}" if record.exc_info else line


class JsonFormatter(logging.Formatter):
    """One JSON object per line: time, level, logger, message, and request_id and exception where there are any."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the line."""
        fields = {
            "time": _timestamp(record),
            "level": record.levelname,
            "logger": record.name,
            "message": record.getMessage(),
        }
        if request_id := getattr(record, "request_id", ""):
            fields["request_id"] = request_id
        if record.exc_info:
            fields["exception"] = self.formatException(record.exc_info)
        return json.dumps(fields, ensure_ascii=False)


def configure_logging(level: str, *, as_json: bool = False, stream: TextIO | None = None) -> None:
    """Send the log lines of Paceline's own loggers to ``stream`` (default: stderr).

    Calling it again replaces the settings of the first call. Other libraries' loggers stay as they are.
    """
    handler = logging.StreamHandler(stream)
    handler.setFormatter(JsonFormatter() if as_json else TextFormatter())
    handler.addFilter(_RequestIdFilter())
    for name in LOGGER_NAMES:
        logger = logging.getLogger(name)
        logger.handlers = [handler]
        logger.setLevel(level)
        logger.propagate = False


def _timestamp(record: logging.LogRecord) -> str:
    moment = datetime.fromtimestamp(record.created, UTC)
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")
