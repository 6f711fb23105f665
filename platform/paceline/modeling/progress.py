"""How long work reports that it goes on."""

from typing import Protocol


class Progress(Protocol):
    """Called with the stage in words, and how much of it is done; a total of 0 means unknown."""

    def __call__(self, stage: str, done: int, total: int) -> None:
        """Report ``done`` of ``total`` units of ``stage``."""


def silent(stage: str, done: int, total: int) -> None:
    """Report nothing."""
