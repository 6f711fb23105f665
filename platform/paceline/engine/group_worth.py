"""What a drafter group is worth, as far as the target has seen: for whoever has to choose one."""

from collections.abc import Callable

from paceline.engine.acceptance import AcceptanceEstimate

WaitTimes = Callable[[int], float | None]  # seconds until so many drafts are there; None: not known

_EVERY = 16  # rounds from one look to the next
_ENOUGH_TESTED = 20  # first drafts of rounds, below which nothing is said


class GroupWorth:
    """Keeps `gain` up to date. Written by the engine's thread, read by any."""

    def __init__(self) -> None:
        self.gain: float | None = None
        """Tokens per second against plain decoding, one answer at a time; None: too little is known."""
        self._rounds = 0

    def settle(
        self, acceptance: AcceptanceEstimate, wait_s: WaitTimes, pass_s: Callable[[int], float], *, depth: int
    ) -> None:
        """End of a step; now and then a new look at what drafts up to ``depth`` bring."""
        self._rounds += 1
        if depth and self._rounds % _EVERY == 1:
            self.gain = expected_gain(acceptance, wait_s, pass_s, depth=depth)


def expected_gain(
    acceptance: AcceptanceEstimate, wait_s: WaitTimes, pass_s: Callable[[int], float], *, depth: int
) -> float | None:
    """Speed with chains of the best length up to ``depth``, over that of plain decoding.

    With E(k) tokens committed by a round with k drafts, w(k) seconds until they are there and t(n) seconds of a pass
    over n tokens: the largest E(k) · t(1) / (w(k) + t(1 + k)). None where acceptance or times were not measured.
    """
    if acceptance.num_tested < _ENOUGH_TESTED or pass_s(1) <= 0.0:
        return None
    gains = []
    for drafts in range(1, depth + 1):
        waited_s = wait_s(drafts)
        if waited_s is None:
            return None
        gains.append(acceptance.expected_tokens(drafts) * pass_s(1) / (waited_s + pass_s(1 + drafts)))
    return max(gains, default=None)
