import random

from paceline.rpc.endpoint import Endpoint
from paceline.rpc.endpoint_chooser import LONGEST_BACKOFF_S, EndpointChooser

A, B, C = (Endpoint(name, f"{name}:1", "t") for name in "abc")


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def chooser(*endpoints: Endpoint) -> tuple[EndpointChooser, Clock]:
    clock = Clock()
    made = EndpointChooser(clock, random.Random(1))
    made.update(endpoints)
    return made, clock


def test_choice_is_random_over_all():
    """Targets spread over the replicas of a group."""
    made, _ = chooser(A, B, C)
    assert {made.choose() for _ in range(60)} == {A, B, C}


def test_failed_replica_is_left_alone_for_a_while_that_grows():
    """Others are tried first; the pause doubles up to its limit."""
    made, clock = chooser(A, B)
    made.failed(A)
    assert {made.choose() for _ in range(20)} == {B}
    made.failed(B)
    assert made.choose() is None
    waits = []
    for _ in range(12):
        waits.append(made.wait_s())
        clock.now += waits[-1]
        failing = made.choose()
        made.failed(failing)
    assert waits[0] < 0.1
    assert max(waits) <= 1.5 * LONGEST_BACKOFF_S
    assert max(waits) > 0.5


def test_success_ends_the_pause():
    """A replica that works again is tried at once."""
    made, _ = chooser(A)
    made.failed(A)
    made.succeeded(A)
    assert made.choose() == A


def test_refusal_sticks_until_the_replica_is_gone():
    """A replica that does not match is never asked again; its successor under another id is."""
    made, clock = chooser(A)
    made.refused(A, "differ in vocabulary.size")
    clock.now = 1e6
    assert made.choose() is None
    assert made.wait_s() is None
    assert "vocabulary.size" in made.why_none

    made.update([B])

    assert made.choose() == B
    assert A not in made


def test_no_replica_at_all_is_said():
    """An empty group is not reported as failing."""
    made, _ = chooser()
    assert made.why_none == "no replica"
    assert made.wait_s() is None
