import io
import json
import logging

import pytest

from paceline.telemetry.logging_setup import LOGGER_NAMES, configure_logging, request_logging


@pytest.fixture(autouse=True)
def _restore_loggers():
    loggers = [logging.getLogger(name) for name in LOGGER_NAMES]
    before = [(logger.handlers, logger.level, logger.propagate) for logger in loggers]
    yield
    for logger, (handlers, level, propagate) in zip(loggers, before, strict=True):
        logger.handlers, logger.propagate = handlers, propagate
        logger.setLevel(level)


def test_json_lines_carry_the_request_id():
    """Lines inside the block name the request; lines outside have no such field."""
    stream = io.StringIO()
    configure_logging("INFO", as_json=True, stream=stream)
    logger = logging.getLogger("paceline.engine")

    with request_logging("r1/1"):
        logger.info("admitted %s", "x")
    logger.info("idle")

    inside, outside = [json.loads(line) for line in stream.getvalue().splitlines()]
    assert inside["request_id"] == "r1/1"
    assert inside["message"] == "admitted x"
    assert inside["logger"] == "paceline.engine"
    assert "request_id" not in outside


def test_text_lines_carry_id_and_traceback():
    """A text line shows level, logger and request id; an exception's traceback follows."""
    stream = io.StringIO()
    configure_logging("INFO", stream=stream)
    logger = logging.getLogger("paceline_serve.target")

    with request_logging("r2"):
        try:
            int("boom")
        except ValueError:
            logger.exception("failed")

    assert " ERROR paceline_serve.target [r2] failed\n" in stream.getvalue()
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
