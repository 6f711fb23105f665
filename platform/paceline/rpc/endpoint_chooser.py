"""Which replica of a drafter group to try next."""

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from paceline.rpc.endpoint import Endpoint

FIRST_BACKOFF_S = 0.05
LONGEST_BACKOFF_S = 2.0


@dataclass(slots=True)
class _Failures:
    num: int = 0
    retry_at: float = 0.0  # clock time


class EndpointChooser:
    """Random choice among replicas that are worth a try.

    A replica that failed is left alone for a while that doubles; one that refused the handshake is
    never asked again: what it is does not change while it lives.
    """

    def __init__(self, clock: Callable[[], float], rng: random.Random) -> None:
        self._clock = clock
        self._rng = rng
        self._endpoints: tuple[Endpoint, ...] = ()
        self._failures: dict[str, _Failures] = {}
        self._refusals: dict[str, str] = {}

    def update(self, endpoints: Sequence[Endpoint]) -> None:
        """Replace the list of replicas; what is known of those that stay is kept."""
        self._endpoints = tuple(endpoints)
        ids = {endpoint.replica_id for endpoint in endpoints}
        self._failures = {key: value for key, value in self._failures.items() if key in ids}
        self._refusals = {key: value for key, value in self._refusals.items() if key in ids}

    def __contains__(self, endpoint: Endpoint) -> bool:
        return endpoint in self._endpoints

    def choose(self) -> Endpoint | None:
        """A replica to try now, or None."""
        now = self._clock()
        ready = [endpoint for endpoint in self._candidates() if self._retry_at(endpoint) <= now]
        return self._rng.choice(ready) if ready else None

    def wait_s(self) -> float | None:
        """Time until a replica is worth a try; None: not before the list changes."""
        waits = [self._retry_at(endpoint) - self._clock() for endpoint in self._candidates()]
        return max(0.0, min(waits)) if waits else None

    def succeeded(self, endpoint: Endpoint) -> None:
        """Forget a replica's failures."""
        self._failures.pop(endpoint.replica_id, None)

    def failed(self, endpoint: Endpoint) -> None:
        """Leave a replica alone for a while."""
        failures = self._failures.setdefault(endpoint.replica_id, _Failures())
        backoff_s = min(LONGEST_BACKOFF_S, FIRST_BACKOFF_S * 2**failures.num)
        failures.num += 1
        # Jitter: targets that lost the same drafter must not come back as one.
        failures.retry_at = self._clock() + backoff_s * self._rng.uniform(0.5, 1.5)

    def refused(self, endpoint: Endpoint, why: str) -> None:
        """Never ask a replica again."""
        self._refusals[endpoint.replica_id] = why

    @property
    def why_none(self) -> str:
        """Why no replica is left to try, in words."""
        if not self._endpoints:
            return "no replica"
        return next(iter(self._refusals.values()), "all replicas failed lately")

    def _candidates(self) -> list[Endpoint]:
        return [endpoint for endpoint in self._endpoints if endpoint.replica_id not in self._refusals]

    def _retry_at(self, endpoint: Endpoint) -> float:
        failures = self._failures.get(endpoint.replica_id)
        return failures.retry_at if failures else 0.0
