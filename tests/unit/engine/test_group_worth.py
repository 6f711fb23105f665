"""What a drafter group is worth: from what was accepted and from times, never from less than enough of both."""

import pytest

from drafters import CoinDrafter, SlowDrafter
from engine_harness import Harness
from paceline.engine.acceptance import AcceptanceEstimate
from paceline.engine.group_worth import GroupWorth, WaitTimes, expected_gain
from toy_target import ToyRunner, hashed_law


def seen(share: float, rounds: int, reply_s: float | None) -> tuple[AcceptanceEstimate, WaitTimes]:
    """An estimate after ``rounds`` with one draft each, of which ``share`` were accepted."""
    acceptance = AcceptanceEstimate()
    for index in range(rounds):
        acceptance.note(1, int(index * share) != int((index + 1) * share))
    return acceptance, lambda drafts: reply_s


@pytest.mark.parametrize(
    ("rounds", "reply_s", "pass_s"), [(10, 0.001, 0.01), (500, None, 0.01), (500, 0.001, 0.0), (0, 0.001, 0.01)]
)
def test_nothing_is_said_before_enough_was_seen(rounds, reply_s, pass_s):
    """Too few tested drafts, no reply, or no pass measured."""
    assert expected_gain(*seen(0.8, rounds, reply_s), lambda n: pass_s, depth=4) is None
    assert expected_gain(*seen(0.8, 500, 0.001), lambda n: 0.01, depth=0) is None


def test_the_gain_is_that_of_the_formula():
    """One draft, always accepted, ready after a tenth of a pass: 2 tokens in 1.1 passes, but for the prior."""
    gain = expected_gain(*seen(1.0, 2000, 0.001), lambda n: 0.01, depth=1)

    assert gain == pytest.approx(2 / 1.1, rel=0.05)


def test_acceptance_raises_and_time_lowers_it():
    """A group that is never right, one that is slow, and one whose drafts are dear to check are worth little."""
    good = expected_gain(*seen(0.9, 500, 0.001), lambda n: 0.01, depth=4)
    poor = expected_gain(*seen(0.0, 500, 0.001), lambda n: 0.01, depth=4)
    slow = expected_gain(*seen(0.9, 500, 0.05), lambda n: 0.01, depth=4)
    crowded = expected_gain(*seen(0.9, 500, 0.001), lambda n: 0.01 * n, depth=4)

    assert good > 2
    assert max(poor, slow, crowded) < 1.05


def test_the_best_number_of_drafts_counts():
    """A longer limit never makes a group look worse."""
    known = seen(0.6, 500, 0.001)
    gains = [expected_gain(*known, lambda n: 0.01 + 0.003 * n, depth=depth) for depth in (1, 2, 4, 8)]

    assert gains == sorted(gains)


def test_it_is_looked_at_now_and_then():
    """At once, then every sixteen rounds; not while the group is turned off."""
    worth, known = GroupWorth(), seen(0.9, 500, 0.001)
    worth.settle(*known, lambda n: 0.01, depth=0)
    assert worth.gain is None
    for _ in range(16):
        worth.settle(*known, lambda n: 0.01, depth=4)
    assert worth.gain is not None
    first = worth.gain
    for _ in range(15):
        worth.settle(*seen(0.1, 500, 0.001), lambda n: 0.01, depth=4)
    assert worth.gain == first


def test_an_engine_learns_which_group_is_better():
    """After some answers by each, the status of the right one promises more than that of the wrong one."""
    law = hashed_law(11)
    plain = Harness(ToyRunner(law, 11))
    for seed in range(8):
        plain.submit(f"{seed}/1", (1, 2, 3), seed=seed, max_tokens=60)
    plain.run()
    references = [(1, 2, 3, *plain.ids(f"{seed}/1")) for seed in range(8)]
    harness = Harness(
        ToyRunner(law, 11),
        {
            "wrong": CoinDrafter(references, vocab_size=11, share=0.1),
            "right": CoinDrafter(references, vocab_size=11, share=0.95),
            "unused": SlowDrafter(references, delay_s=0.0),
        },
    )
    assert [group.gain for group in harness.speculation.groups()] == [None, None, None]
    for seed in range(8):
        for group in ("wrong", "right"):
            harness.submit(f"{seed}/{group}", (1, 2, 3), drafter=group, seed=seed, max_tokens=60)
    harness.run()
    gains = {group.name: group.gain for group in harness.speculation.groups()}

    assert gains["unused"] is None
    assert gains["right"] > gains["wrong"] > 0
