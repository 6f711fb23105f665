"""How fast places come while new requests wait, and so how long a request would wait."""

import math

_MEMORY_S = 30.0  # what happened this long ago counts about a third
_MIN_PLACES = 3  # below this many the estimate says nothing
_SMALLEST = 1e-9  # places; hours without any


class PlaceRate:
    """Places per second over the time in which new requests have been waiting without a break.

    Whatever came while nobody waited is left out, and a queue that was empty starts anew: how fast a fleet
    takes requests while it has room says nothing about how fast it does once it has none. Times are seconds of
    one clock that never goes back.
    """

    def __init__(self) -> None:
        self._since: float | None = None  # None: nobody waits
        self._num_seen = 0
        self._places = 0.0  # both decay
        self._time_s = 0.0

    def waiting_began(self, now: float) -> None:
        """The first new request has come to the queue."""
        self._since, self._num_seen, self._places, self._time_s = now, 0, 0.0, 0.0

    def waiting_ended(self) -> None:
        """The last new request has left the queue."""
        self._since = None

    def place_came(self, now: float) -> None:
        """A request that waited has a place."""
        self._advance(now)
        self._num_seen += 1
        self._places += 1

    def wait_s(self, num_before: int, now: float) -> float | None:
        """Seconds after which a request with ``num_before`` others before it has a place; None where unknown."""
        self._advance(now)
        if self._since is None or self._num_seen < _MIN_PLACES:
            return None
        return (num_before + 1) * self._time_s / max(self._places, _SMALLEST)

    def _advance(self, now: float) -> None:
        if self._since is None or now <= self._since:
            return
        kept = math.exp(-(now - self._since) / _MEMORY_S)
        self._places *= kept
        self._time_s = self._time_s * kept + _MEMORY_S * (1 - kept)
        self._since = now
