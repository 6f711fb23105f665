"""Moving the answers of a replica that is about to go, one after another; no time passes."""

import pytest

from paceline_serve import departure
from paceline_serve.departure import move_streams


class Target:
    def __init__(self, num_staying: int) -> None:
        self.num_staying = num_staying

    def move_one(self) -> None:
        self.num_staying -= 1


@pytest.fixture
def pauses(monkeypatch):
    """The pauses made, in seconds; each takes no time."""
    pauses = []

    async def sleep(seconds: float) -> None:
        pauses.append(seconds)

    monkeypatch.setattr(departure.asyncio, "sleep", sleep)
    return pauses


@pytest.mark.parametrize("num", [1, 8, 50])
async def test_moves_are_spread_over_about_a_second(pauses, num):
    """Neither all at once, which would queue their prefills up elsewhere, nor so slowly that a drain waits."""
    target = Target(num)
    await move_streams(target, has_other=lambda: True)

    assert target.num_staying == 0
    assert len(pauses) == num + 1
    assert sum(pauses) <= 2.0
    assert max(pauses[1:]) <= 1.5 / num
    assert min(pauses[1:]) >= 0.5 / num


async def test_nothing_moves_while_there_is_nowhere_to_go(pauses):
    """Streams stay until another replica is there, then all go."""
    target = Target(3)
    asked = []

    def has_other() -> bool:
        asked.append(target.num_staying)
        return len(asked) > 20

    await move_streams(target, has_other=has_other)

    assert asked == [3] * 21 + [2, 1]
    assert target.num_staying == 0
