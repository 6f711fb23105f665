"""Which target replica a request had better go to: pure, on a clock and a source of chance that are passed in."""

import random
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager

from paceline.routing.target_load import REPORT_VALID_S, OwnRequest, ReplicaLoad, TargetReport

_AVOID_S = 5.0  # a replica that failed is not preferred for this long
_STALLED_S = 2.0  # work that does not get on for this long: a long prefill, or an engine that is stuck
_OVERDUE_S = 8.0  # a replica that got nothing for this long is tried once, so that a gauge that is stuck is found out
_OVERDUE_REQUESTS = (
    8  # ... and this many went elsewhere: a quiet gateway has no news of its own, and goes by the reports
)


class _Replica:
    def __init__(self, load: ReplicaLoad, now: float) -> None:
        self.load = load
        self.avoid_until = now
        self.got_at = now  # when it last got a request from here
        self.num_passed_over = 0  # requests that went elsewhere since


class TargetChoice:
    """Prefers the less loaded of two random replicas.

    Gateways decide apart, on reports that are up to a second old. If each took the least loaded one they would all
    take the same; of two random ones a replica gets no more than its share twice over, whatever they all believe.
    Replicas without a fresh report, and those that drain, stall or have just failed, are never preferred. They are
    not excluded: where no other has room the request may still go there.
    """

    def __init__(
        self, *, clock: Callable[[], float], rng: random.Random, report_valid_s: float = REPORT_VALID_S
    ) -> None:
        self._clock = clock
        self._rng = rng
        self._report_valid_s = report_valid_s
        self._replicas: dict[str, _Replica] = {}

    def join(self, replica_id: str) -> None:
        """Begin with a replica of which nothing is known; also one that came back under its old id."""
        self._replicas[replica_id] = _Replica(ReplicaLoad(self._clock, valid_s=self._report_valid_s), self._clock())

    def leave(self, replica_id: str) -> None:
        """Forget a replica; unknown ones are fine."""
        self._replicas.pop(replica_id, None)

    def reported(self, replica_id: str, report: TargetReport) -> None:
        """Take in a report; one of a replica that has left is ignored."""
        if replica_id in self._replicas:
            self._replicas[replica_id].load.reported(report)

    def failed(self, replica_id: str) -> None:
        """An attempt there broke: prefer others for a while."""
        if replica_id in self._replicas:
            self._replicas[replica_id].avoid_until = self._clock() + _AVOID_S

    def failed_lately(self) -> set[str]:
        """Replicas that `failed`, not long ago. Any thread: it looks at a copy."""
        now = self._clock()
        return {replica_id for replica_id, replica in list(self._replicas.items()) if replica.avoid_until > now}

    def load_of(self, replica_id: str | None) -> ReplicaLoad | None:
        """What is known of a replica's load; None for an unknown replica."""
        replica = self._replicas.get(replica_id or "")
        return None if replica is None else replica.load

    def sent(self, replica_id: str) -> None:
        """A request goes to this replica."""
        if replica_id in self._replicas:
            self._replicas[replica_id].got_at = self._clock()
            self._replicas[replica_id].num_passed_over = 0

    def prefer(self, usable: Collection[str]) -> str | None:
        """The replica of ``usable`` that the next request had better go to; None: no reason to prefer any."""
        scores = {
            replica_id: score for replica_id in usable if (score := self._score_of_a_good_one(replica_id)) is not None
        }
        if not scores:
            return None
        chosen = self._overdue(scores) or self._less_loaded_of_two(scores)
        for replica_id in scores:
            self._replicas[replica_id].num_passed_over += 1
        self.sent(chosen)
        return chosen

    @contextmanager
    def asking(self, preferred: str | None) -> Iterator["Asking"]:
        """Count a request, for the length of the block: where it is meant to go, then where it goes."""
        asking = Asking(self, preferred)
        try:
            yield asking
        finally:
            asking.end()

    def _score_of_a_good_one(self, replica_id: str) -> int | None:
        replica = self._replicas.get(replica_id)
        if replica is None or replica.avoid_until > self._clock():
            return None
        report = replica.load.report
        if report is None or report.draining or report.stalled_s >= _STALLED_S:
            return None
        return replica.load.score

    def _overdue(self, candidates: Collection[str]) -> str | None:
        since = self._clock() - _OVERDUE_S
        overdue = [
            replica_id
            for replica_id in candidates
            if (replica := self._replicas[replica_id]).got_at <= since and replica.num_passed_over >= _OVERDUE_REQUESTS
        ]
        return min(overdue, key=lambda replica_id: self._replicas[replica_id].got_at, default=None)

    def _less_loaded_of_two(self, scores: dict[str, int]) -> str:
        two = self._rng.sample(sorted(scores), min(2, len(scores)))
        least = min(scores[replica_id] for replica_id in two)
        return self._rng.choice([replica_id for replica_id in two if scores[replica_id] == least])


class Asking:
    """A request of this gateway, in the table of a `TargetChoice`."""

    def __init__(self, choice: TargetChoice, replica_id: str | None) -> None:
        self._choice = choice
        self._replica_id: str | None = None
        self._load: ReplicaLoad | None = None
        self._request = OwnRequest()
        self._expect(replica_id)

    def got(self, replica_id: str) -> None:
        """The place is on this replica."""
        if replica_id != self._replica_id:
            self.end()
            self._expect(replica_id)
        if self._load is not None:
            self._load.arrived(self._request)
            self._choice.sent(replica_id)

    def end(self) -> None:
        """The place has gone back, or was not given."""
        if self._load is not None:
            self._load.ended(self._request)
            self._load = None

    def _expect(self, replica_id: str | None) -> None:
        self._replica_id = replica_id
        # Kept here, not looked up later: a replica may come back under its id with a load of its own.
        self._load = self._choice.load_of(replica_id)
        self._request = OwnRequest() if self._load is None else self._load.expect()
