"""Whether a request goes on after an attempt has failed: one pure function.

| the attempt failed with | and had | then |
|---|---|---|
| TargetLostError, EngineFailedError, CacheCorruptionError, StreamGapError | - | a loss |
| TargetUnavailableError | committed new tokens | a loss |
| TargetUnavailableError | committed nothing | a refusal: nothing ran |
| TargetLeavingError | committed new tokens | it moves, uncounted |
| TargetLeavingError | committed nothing | a refusal |
| OverloadedError of a target | an answer to go on with | a refusal |
| anything else, and whatever it got no place for before the answer had begun | - | the end |

A loss may be the request's own fault: the second one in an attempt that had committed nothing ends the request. An
answer that has begun is given one more, because a neighbour may have been the cause. The fourth loss of any kind ends
all. Replicas that refuse are tried a few times in a row: seconds for a new request, which its client can send again,
longer for an answer that has begun.
"""

from dataclasses import dataclass
from typing import NamedTuple

from paceline.errors import (
    CacheCorruptionError,
    EngineFailedError,
    OverloadedError,
    PacelineError,
    RequestAbandonedError,
    StreamGapError,
    TargetLeavingError,
    TargetLostError,
    TargetUnavailableError,
)

MAX_LOSSES = 4
MAX_LOSSES_NEW = 2
MAX_LOSSES_BEGUN = 3
MAX_REFUSALS = 5
MAX_REFUSALS_BEGUN = 30

_LOSSES = (TargetLostError, EngineFailedError, CacheCorruptionError, StreamGapError)
_GONE_S = 30.0  # a replica that is dead, silent or leaving; beyond this it may have come to itself
_FAILED_S = 1.0  # one that answers, and answered badly: better another, if there is one
_PAUSE_S = 0.02  # before the second refusal in a row; doubles
_MAX_PAUSE_S = 1.0


@dataclass(frozen=True, slots=True)
class Tally:
    """What has befallen the attempts of one request."""

    losses: int = 0  # attempts that failed while they worked on it
    refusals: int = 0  # attempts in a row that failed before they did


class Further(NamedTuple):
    """How a request goes on."""

    tally: Tally
    reason: str  # "lost", "leaving" or "refused"
    avoid_s: float  # time for which the replica is not chosen again
    pause_s: float  # before the next attempt


def after_failure(error: PacelineError, tally: Tally, *, placed: bool, begun: bool, advanced: bool) -> Further:
    """How to go on after ``error``.

    ``placed``: the attempt had a place on a replica; ``begun``: some of the answer has reached the client;
    ``advanced``: this attempt had committed tokens. Raises what the client gets if the request does not go on.
    """
    if advanced:
        tally = Tally(tally.losses)
    if isinstance(error, TargetLeavingError) and advanced:
        return Further(tally, "leaving", _GONE_S, 0.0)
    is_unavailable = isinstance(error, TargetUnavailableError)
    if isinstance(error, _LOSSES) or (is_unavailable and advanced):
        return _after_loss(error, tally, begun=begun, advanced=advanced)
    if begun and (is_unavailable or isinstance(error, OverloadedError)):
        return _after_refusal(error, tally, MAX_REFUSALS_BEGUN)
    if placed and is_unavailable:
        return _after_refusal(error, tally, MAX_REFUSALS)
    raise error


def _after_loss(error: PacelineError, tally: Tally, *, begun: bool, advanced: bool) -> Further:
    losses = tally.losses + 1
    in_vain = MAX_LOSSES_BEGUN if begun else MAX_LOSSES_NEW
    if losses >= MAX_LOSSES or (losses >= in_vain and not advanced):
        raise RequestAbandonedError(losses) from error
    gone = isinstance(error, TargetUnavailableError)
    return Further(Tally(losses), "lost", _GONE_S if gone else _FAILED_S, 0.0)


def _after_refusal(error: PacelineError, tally: Tally, limit: int) -> Further:
    refusals = tally.refusals + 1
    if refusals >= limit:
        raise error
    leaving = isinstance(error, TargetLeavingError)
    pause_s = min(_PAUSE_S * 2 ** (refusals - 1), _MAX_PAUSE_S)
    return Further(
        Tally(tally.losses, refusals),
        "leaving" if leaving else "refused",
        _GONE_S if leaving else _FAILED_S,
        pause_s,
    )
