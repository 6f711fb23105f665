"""Finds stop strings in text that arrives in pieces."""

from collections.abc import Sequence
from typing import NamedTuple


class StopMatch(NamedTuple):
    """Text that may be shown, and the stop string that ended it, if one did."""

    text: str
    stop: str | None


class StopStrings:
    """Holds back exactly the text that could still turn out to be the start of a stop string.

    The match that is complete first wins; among those complete at the same character, the one that
    starts first. So the result does not depend on how the text was cut. The stop string itself is
    never shown, nor anything after it.
    """

    def __init__(self, stops: Sequence[str]) -> None:
        """Stop strings; empty ones are refused at the edge and ignored here."""
        self._stops = tuple(stop for stop in stops if stop)
        self._held = ""
        self._matched: str | None = None

    def push(self, text: str) -> StopMatch:
        """Take a piece of text. After a match nothing is shown any more."""
        if self._matched is not None:
            return StopMatch("", self._matched)
        buffer = self._held + text
        matches = [(start + len(stop), start, stop) for stop in self._stops if (start := buffer.find(stop)) >= 0]
        if matches:
            _, start, self._matched = min(matches)
            self._held = ""
            return StopMatch(buffer[:start], self._matched)
        edge = len(buffer) - self._num_held(buffer)
        self._held = buffer[edge:]
        return StopMatch(buffer[:edge], None)

    def flush(self) -> str:
        """Text held back for a stop string that never came; for the end of the output."""
        held, self._held = self._held, ""
        return held

    def _num_held(self, buffer: str) -> int:
        """Length of the longest end of ``buffer`` that is a proper prefix of a stop string."""
        longest = 0
        for stop in self._stops:
            for length in range(min(len(stop) - 1, len(buffer)), longest, -1):
                if buffer.endswith(stop[:length]):
                    longest = length
                    break
        return longest
