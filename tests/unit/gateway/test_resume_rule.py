import pytest

from paceline.errors import (
    CacheCorruptionError,
    DeadlineExceededError,
    EngineFailedError,
    InvalidRequestError,
    OverloadedError,
    RequestAbandonedError,
    StreamGapError,
    TargetLeavingError,
    TargetLostError,
    TargetUnavailableError,
)
from paceline.gateway.resume_rule import MAX_LOSSES, MAX_REFUSALS, MAX_REFUSALS_BEGUN, Tally, after_failure

LOST = TargetLostError("it died")
FAILED = EngineFailedError("boom")
CORRUPT = CacheCorruptionError("a page is missing")
GAP = StreamGapError(3, 5)
LEAVING = TargetLeavingError("it is drained")
UNAVAILABLE = TargetUnavailableError("no hold")
FULL = OverloadedError("the target's queue", 1.0)


def _after(error, tally=Tally(), *, placed=True, begun=False, advanced=False):  # noqa: B008  # frozen
    return after_failure(error, tally, placed=placed, begun=begun or advanced, advanced=advanced)


@pytest.mark.parametrize(
    ("error", "state", "reason", "losses", "refusals"),
    [
        (LOST, {}, "lost", 1, 0),
        (LOST, {"begun": True}, "lost", 1, 0),
        (LOST, {"advanced": True}, "lost", 1, 0),
        (FAILED, {}, "lost", 1, 0),
        (CORRUPT, {"advanced": True}, "lost", 1, 0),
        (GAP, {"advanced": True}, "lost", 1, 0),
        (UNAVAILABLE, {"advanced": True}, "lost", 1, 0),
        (UNAVAILABLE, {}, "refused", 0, 3),
        (UNAVAILABLE, {"begun": True}, "refused", 0, 3),
        (UNAVAILABLE, {"begun": True, "placed": False}, "refused", 0, 3),
        (LEAVING, {"advanced": True}, "leaving", 0, 0),
        (LEAVING, {"begun": True}, "leaving", 0, 3),
        (LEAVING, {}, "leaving", 0, 3),
        (FULL, {"begun": True}, "refused", 0, 3),
    ],
)
def test_what_is_tried_again(error, state, reason, losses, refusals):
    """Losses count against the request, refusals in a row add up, a move of an answer that got on counts nothing."""
    further = _after(error, Tally(refusals=2), **state)

    assert (further.reason, further.tally) == (reason, Tally(losses, refusals))


@pytest.mark.parametrize(
    ("error", "state"),
    [
        (UNAVAILABLE, {"placed": False}),
        (FULL, {"placed": False}),
        (FULL, {}),
        (InvalidRequestError("no"), {"advanced": True}),
        (DeadlineExceededError(3.0), {"advanced": True}),
    ],
)
def test_what_is_not_tried_again(error, state):
    """A wait for a place in vain, a full queue, the client's own faults and the deadline end a request as they are."""
    with pytest.raises(type(error)) as caught:
        _after(error, **state)
    assert caught.value is error


@pytest.mark.parametrize("error", [LOST, FAILED, CORRUPT, GAP])
def test_the_second_loss_in_vain_abandons_a_new_request(error):
    """A request that kills its target twice is not given a third one; an answer that has begun is given one more."""
    assert _after(error, Tally(losses=1), begun=True).tally.losses == 2
    with pytest.raises(RequestAbandonedError, match="3 times"):
        _after(error, Tally(losses=2), begun=True)
    with pytest.raises(RequestAbandonedError, match="2 times") as caught:
        _after(error, Tally(losses=1))
    assert caught.value.__cause__ is error


def test_a_loss_after_progress_is_forgiven_until_there_are_too_many():
    """Evidently the request is not what kills; but four replicas are enough for anyone."""
    tally = Tally()
    for losses in range(1, MAX_LOSSES):
        tally = _after(LOST, tally, advanced=True).tally
        assert tally.losses == losses
    with pytest.raises(RequestAbandonedError, match="4 times"):
        _after(LOST, tally, advanced=True)


@pytest.mark.parametrize(("begun", "limit"), [(False, MAX_REFUSALS), (True, MAX_REFUSALS_BEGUN)])
def test_refusals_end_sometime_and_an_answer_that_has_begun_waits_longer(begun, limit):
    """A request that can be sent again fails soon; progress in between starts the count anew."""
    tally, pauses = Tally(), []
    for _ in range(limit - 1):
        further = _after(UNAVAILABLE, tally, begun=begun)
        tally = further.tally
        pauses.append(further.pause_s)

    assert pauses == sorted(pauses)
    assert sum(pauses) < 1 if not begun else sum(pauses) > 15
    assert _after(LEAVING, tally, advanced=True).tally.refusals == 0
    with pytest.raises(TargetUnavailableError):
        _after(UNAVAILABLE, tally, begun=begun)


def test_dead_and_leaving_replicas_are_avoided_for_longer_than_those_that_answer():
    """One that failed a request may serve it a second later; one that fell silent had better not get it back."""
    gone = min(_after(error, advanced=True).avoid_s for error in (LOST, LEAVING))

    assert gone > 10 > max(_after(error).avoid_s for error in (FAILED, UNAVAILABLE))
