"""Whether a replica takes new work."""


class DrainFlag:
    """Once raised it stays: a replica that has drained is replaced by a new process."""

    def __init__(self) -> None:
        self._is_raised = False

    @property
    def is_raised(self) -> bool:
        """Whether the replica takes no new work any more."""
        return self._is_raised

    def start(self) -> None:
        """Take no new work from now on; what runs goes on. Idempotent."""
        self._is_raised = True
