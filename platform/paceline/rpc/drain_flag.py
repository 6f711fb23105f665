"""Whether a replica takes new work."""


class DrainFlag:
    """Once set it stays set: a replica that has drained is replaced by a new process."""

    def __init__(self) -> None:
        self._draining = False

    def __bool__(self) -> bool:
        return self._draining

    def start(self) -> None:
        """Take no new work from now on; what runs goes on. Idempotent."""
        self._draining = True
