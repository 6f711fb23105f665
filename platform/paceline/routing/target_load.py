"""The load of one target replica, as a gateway knows it.

It has the replica's newest report, how old that is, and its own requests, of which the report may not know yet.
"""

from collections.abc import Callable
from dataclasses import dataclass

REPORT_VALID_S = 3.0
"""Age at which a report says nothing any more; replicas report at least once a second."""

_ARRIVAL_S = 0.05  # a replica counts a request this much later, at most, than the gateway that sent it there
_DRIFT = 1e-3  # by how much two machines' clocks may differ in speed


@dataclass(frozen=True, slots=True)
class TargetReport:
    """What a replica said of itself, as far as the choice of a replica needs it."""

    busy: int  # what it runs or will run: its choices, or its places where more of those are taken
    uptime_s: float = 0.0  # of the replica when it made the report; 0: not known
    draining: bool = False
    stalled_s: float = 0.0  # time since its waiting work last got on


@dataclass(slots=True, eq=False)
class OwnRequest:
    """One request of this gateway, from asking for a place to the end of its stream."""

    arrived_at: float | None = None  # when the place was given; None while it is only asked for


class ReplicaLoad:
    """Load of one replica. ``clock`` counts seconds."""

    def __init__(self, clock: Callable[[], float], *, valid_s: float = REPORT_VALID_S) -> None:
        self._clock = clock
        self._valid_s = valid_s
        self._report: TargetReport | None = None
        self._made_at = 0.0  # by our clock
        self._offset: float | None = None  # least (our clock - uptime) seen: that report travelled fastest
        self._offset_at = 0.0
        self._unreported: set[OwnRequest] = set()
        self._num_ended = 0  # own requests that the report counts and that have ended since

    @property
    def report(self) -> TargetReport | None:
        """The newest report; None before the first one and once it is too old."""
        expired = self._clock() - self._made_at > self._valid_s
        return None if expired else self._report

    @property
    def score(self) -> int | None:
        """Requests and choices there at this moment; None where no fresh report says."""
        report = self.report
        return None if report is None else max(0, report.busy + len(self._unreported) - self._num_ended)

    def reported(self, report: TargetReport) -> None:
        """Take in a report that has just arrived."""
        now = self._clock()
        self._made_at = now - self._travel_s(report.uptime_s, now)
        self._report = report
        self._num_ended = 0
        self._unreported = {own for own in self._unreported if not self._knows(own)}

    def expect(self) -> OwnRequest:
        """Count a request for which a place here is asked."""
        request = OwnRequest()
        self._unreported.add(request)
        return request

    def arrived(self, request: OwnRequest) -> None:
        """The place that was asked for is given."""
        request.arrived_at = self._clock()

    def ended(self, request: OwnRequest) -> None:
        """The place has gone back, or was not given. Called once for each request."""
        if request in self._unreported:
            self._unreported.discard(request)
        else:
            self._num_ended += 1

    def _knows(self, request: OwnRequest) -> bool:
        return request.arrived_at is not None and request.arrived_at <= self._made_at - _ARRIVAL_S

    def _travel_s(self, uptime_s: float, now: float) -> float:
        """How much longer than the fastest one a report was on its way."""
        if uptime_s <= 0:
            return 0.0
        offset = now - uptime_s
        if self._offset is None:
            self._offset = offset
        # The least offset ages: else a clock that runs slow would look like reports that come ever later.
        self._offset = min(offset, self._offset + _DRIFT * (now - self._offset_at))
        self._offset_at = now
        return offset - self._offset
