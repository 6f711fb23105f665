"""Shares of accepted drafts by position, and the tokens that a pass can be expected to commit."""

from itertools import accumulate
from operator import mul

_DECAY = 1 - 1 / 200  # per tested draft: what was accepted long ago counts less
_PRIOR_WEIGHT = 20.0  # tested drafts that the estimate above is worth
_PRIOR_SHARE = 0.6  # where nothing is known at all


class AcceptanceEstimate:
    """a_i (see docs/glossary.md): of the rounds that tested a draft at position i, the share that accepted it.

    On trees a position is a level. An estimate leans on the one ``above`` it, a session on its group,
    for as long as it has little data of its own.
    """

    def __init__(self, above: "AcceptanceEstimate | None" = None) -> None:
        self._above = above
        self._tested: list[float] = []
        self._accepted: list[float] = []

    def note(self, tested: int, accepted: int) -> None:
        """Learn from one round that looked at ``tested`` positions and accepted the first ``accepted``."""
        if self._above is not None:
            self._above.note(tested, accepted)
        while len(self._tested) < tested:
            self._tested.append(0.0)
            self._accepted.append(0.0)
        for position in range(tested):
            self._tested[position] = _DECAY * self._tested[position] + 1.0
            self._accepted[position] = _DECAY * self._accepted[position] + (position < accepted)

    @property
    def num_tested(self) -> float:
        """Rounds that tested a first draft, old ones counting less."""
        return self._tested[0] if self._tested else 0.0

    def share(self, position: int) -> float:
        """Chance that the draft at ``position`` (the first is 0) is accepted once the ones before it were."""
        prior = self._above.share(position) if self._above else _PRIOR_SHARE
        if position >= len(self._tested):
            return prior
        return (self._accepted[position] + _PRIOR_WEIGHT * prior) / (self._tested[position] + _PRIOR_WEIGHT)

    def expected_tokens(self, depth: int) -> float:
        """Tokens that a round with drafts of ``depth`` commits on average, the target's own included."""
        return 1.0 + sum(self.reach(depth))

    def reach(self, depth: int) -> tuple[float, ...]:
        """Chance that each of the first ``depth`` drafts is accepted, those before it included."""
        return tuple(accumulate((self.share(position) for position in range(depth)), mul))
