"""Log lines of Paceline's own loggers, as text. Lines about a request name it."""

import logging
from datetime import UTC, datetime
from typing import TextIO

LOGGER_NAMES = ("paceline", "paceline_serve")


class TextFormatter(logging.Formatter):
    """``2026-01-31T12:00:00.000Z INFO paceline.engine message``."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the line; a traceback follows on lines of its own."""
        line = f"{_timestamp(record)} {record.levelname} {record.name} {record.getMessage()}"
        return f"{line}\n{self.formatException(record.exc_info)}" if record.exc_info else line


def configure_logging(level: str, *, stream: TextIO | None = None) -> None:
    """Send the log lines of Paceline's own loggers to ``stream`` (default: stderr).

    Calling it again replaces the settings of the first call. Other libraries' loggers stay as they are.
    """
    handler = logging.StreamHandler(stream)
    handler.setFormatter(TextFormatter())
    for name in LOGGER_NAMES:
        logger = logging.getLogger(name)
        logger.handlers = [handler]
        logger.setLevel(level)
        logger.propagate = False


def _timestamp(record: logging.LogRecord) -> str:
    moment = datetime.fromtimestamp(record.created, UTC)
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")
