"""Reads files with one JSON object a line."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

from paceline.errors import ConfigError

Made = TypeVar("Made")


def read_json_lines(path: Path, make: Callable[[dict[str, Any]], Made], *, what: str) -> list[Made]:
    """What ``make`` makes of the object of each line that is not blank.

    Raises ConfigError that names the file, or the line of which ``make`` raises TypeError or ValueError;
    ``what`` says what a line should have been.
    """
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path} cannot be read: {error}.") from error
    found = []
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            found.append(make(json.loads(line)))
        except (TypeError, ValueError) as error:
            raise ConfigError(f"Line {number} of {path} is no {what}: {error}.") from error
    return found
