"""What is known about acceptance, and the tokens that follow from it."""

import random

import pytest

from paceline.engine.acceptance import AcceptanceEstimate


def taught(shares, rounds, above=None):
    estimate, draw = AcceptanceEstimate(above), random.Random(3)
    for _ in range(rounds):
        accepted = 0
        while accepted < len(shares) and draw.random() < shares[accepted]:
            accepted += 1
        estimate.note(min(accepted + 1, len(shares)), accepted)
    return estimate


def test_shares_by_position_are_learnt():
    """Each position has its own share, counted over the rounds that tested it."""
    estimate = taught((0.9, 0.5, 0.2), 4000)

    assert [estimate.share(i) for i in range(3)] == pytest.approx([0.9, 0.5, 0.2], abs=0.08)


def test_expected_tokens_add_up_the_chances_of_each_depth():
    """1 + a_0 + a_0 a_1 + ...: the target's own token is always there."""
    estimate = taught((1.0, 1.0), 20_000)

    assert AcceptanceEstimate().expected_tokens(0) == 1.0
    assert AcceptanceEstimate().expected_tokens(2) == pytest.approx(1 + 0.6 + 0.36)
    assert estimate.expected_tokens(2) == pytest.approx(3.0, abs=0.2)


def test_a_new_session_leans_on_its_group():
    """Without data of its own it expects what the group found; with data, what it found itself."""
    group = taught((0.1,), 2000)
    session = AcceptanceEstimate(group)
    assert session.share(0) == group.share(0) < 0.25
    for _ in range(300):
        session.note(1, 1)

    assert session.share(0) > 0.8


def test_sessions_teach_their_group():
    """What one session finds is what the next one begins with."""
    group = AcceptanceEstimate()
    first = AcceptanceEstimate(group)
    for _ in range(300):
        first.note(1, 1)

    assert AcceptanceEstimate(group).share(0) > 0.9


def test_old_rounds_fade():
    """After a change of text the new share is found within a few hundred rounds."""
    estimate = taught((1.0,), 2000)
    for _ in range(600):
        estimate.note(1, 0)

    assert estimate.share(0) < 0.1
