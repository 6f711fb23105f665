"""What a benchmark asks, whichever way the question travels."""

from collections.abc import Mapping
from enum import StrEnum
from typing import Any, Protocol

from paceline.bench.records import BenchQuestion, Recording, RoundCounts


class Api(StrEnum):
    """Endpoints of the OpenAI API."""

    CHAT = "chat"
    COMPLETIONS = "completions"


class Endpoint(Protocol):
    """Something that answers. Called from one asyncio loop, any number of questions at a time."""

    async def ask(self, question: BenchQuestion) -> Recording:
        """Ask once and record the answer to its end. Raises PacelineError kinds; cancelling ends the generation."""

    async def describe(self) -> Mapping[str, Any]:
        """Settings that a result should name: model, config, verifier, as far as they can be known."""

    async def close(self) -> None:
        """Give everything back."""


def round_counts(num_drafted: int, accepted: int, *, parents: tuple[int, ...], path: tuple[int, ...]) -> RoundCounts:
    """Levels of one round that were looked at and accepted; ``parents`` is empty for a chain.

    One level is looked at beyond the accepted ones, where the drafts go on there.
    """
    if not parents:
        return RoundCounts(min(accepted + 1, num_drafted), accepted, num_drafted, num_drafted)
    last = path[-1] if path else -1
    return RoundCounts(accepted + (last in parents), accepted, num_drafted, _depth(parents))


def _depth(parents: tuple[int, ...]) -> int:
    """Levels of a tree whose parents come before their children."""
    levels: list[int] = []
    for parent in parents:
        levels.append(1 if parent < 0 else levels[parent] + 1)
    return max(levels)
