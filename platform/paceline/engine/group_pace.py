"""Whether a drafter group keeps pace with the target."""

_MISSES = 2  # in a row, after which the group is asked for nothing
_LONGEST_PAUSE = 32  # rounds between two probes: about 3 %


class GroupPace:
    """Counts misses of a group. After two in a row its budget is 0 until a probe is answered in time.

    A step is a *miss* if it waited for the group in vain, or if the group's replies came when all that
    they could have said had been committed; it is a *hit* if a reply came before that.
    """

    def __init__(self) -> None:
        self._incarnation = ""
        self._start_afresh()

    def _start_afresh(self) -> None:
        self._misses = 0
        self._hit = self._miss = False  # in this step
        self._suspended = False
        self._pause = 1  # rounds from a suspension, or a failed probe, to the next probe
        self._rounds_left = 0

    @property
    def suspended(self) -> bool:
        """Whether the group's budget is 0."""
        return self._suspended

    def follow(self, incarnation: str) -> None:
        """Note which process drafts; another one than before is not held to what that one missed."""
        if incarnation != self._incarnation:
            self._incarnation = incarnation
            self._start_afresh()

    def hit(self) -> None:
        """A reply came in time to be of use."""
        self._hit = True

    def miss(self) -> None:
        """The group was waited for in vain, or a reply came too late to be of use."""
        self._miss = True

    def settle(self) -> bool:
        """End of a step; True if the group has just been suspended."""
        hit, miss = self._hit, self._miss
        self._hit = self._miss = False
        if hit:
            self._misses = 0
            self._pause = 1 if not self._suspended else self._pause
            self._suspended = False
        elif miss and not self._suspended:
            self._misses += 1
            self._suspended = self._misses >= _MISSES
            self._rounds_left = self._pause
            return self._suspended
        return False

    def may_probe(self) -> bool:
        """Count a round of a suspended group; True if a request without consequence is due."""
        self._rounds_left -= 1
        if self._rounds_left > 0:
            return False
        self._pause = min(2 * self._pause, _LONGEST_PAUSE)
        self._rounds_left = self._pause
        return True
