import io
import logging
import re

import pytest

from paceline.telemetry.logging_setup import LOGGER_NAMES, configure_logging


@pytest.fixture(autouse=True)
def _restore_loggers():
    loggers = [logging.getLogger(name) for name in LOGGER_NAMES]
    before = [(logger.handlers, logger.level, logger.propagate) for logger in loggers]
    yield
    for logger, (handlers, level, propagate) in zip(loggers, before, strict=True):
        logger.handlers, logger.propagate = handlers, propagate
        logger.setLevel(level)


def test_lines_carry_level_logger_and_traceback():
    """A line says when, how bad and who; an exception's traceback follows."""
    stream = io.StringIO()
    configure_logging("INFO", stream=stream)
    logger = logging.getLogger("paceline_serve.target")

    try:
        int("boom")
    except ValueError:
        logger.exception("request %s failed", "r2")

    assert re.match(
        r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z ERROR paceline_serve.target request r2 failed\n", stream.getvalue()
    )
    assert "ValueError: invalid literal" in stream.getvalue()


def test_the_level_holds_and_a_second_call_replaces_the_first():
    """Lines below the level are left out, and configuring twice does not double lines."""
    first, second = io.StringIO(), io.StringIO()
    configure_logging("DEBUG", stream=first)
    configure_logging("WARNING", stream=second)

    logging.getLogger("paceline.rpc").info("quiet")
    logging.getLogger("paceline.rpc").warning("loud")

    assert first.getvalue() == ""
    assert second.getvalue().count("\n") == 1
