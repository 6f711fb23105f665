"""What the engine learns about the time of a pass."""

import random

import pytest

from paceline.engine.step_time import PassTimeModel, PassTimes


def learnt(passes):
    model = PassTimeModel()
    for tokens, seconds in passes:
        model.observe(tokens, seconds)
    return model.times


def affine(tokens):
    return 0.040 + 0.001 * tokens


def test_an_affine_pass_is_learnt_within_a_few_per_cent():
    """From noisy passes of mixed sizes, between and beyond the sizes that were seen."""
    draw = random.Random(1)
    sizes = [draw.choice((1, 2, 5, 9, 17, 40, 100)) for _ in range(400)]
    times = learnt((n, affine(n) * draw.uniform(0.95, 1.05)) for n in sizes)

    for tokens in (1, 3, 5, 12, 30, 70, 100):
        assert times(tokens) == pytest.approx(affine(tokens), rel=0.06)


def test_one_slow_pass_changes_nothing():
    """A pass that took a hundred times as long, such as the first one, does not count."""
    usual = [(4, 0.04)] * 9

    assert learnt([(4, 4.0), *usual])(4) == learnt(usual)(4)


def test_a_slower_machine_is_noticed():
    """After some passes the new time counts alone."""
    assert learnt([(4, 0.04)] * 40 + [(4, 0.08)] * 32)(4) == pytest.approx(0.08)


def test_more_tokens_never_take_less():
    """A noisy bucket cannot make a larger pass look cheaper than a smaller one."""
    times = learnt([(1, 0.05)] * 4 + [(5, 0.04)] * 4 + [(40, 0.09)] * 4)
    curve = [times(n) for n in range(1, 200)]

    assert curve == sorted(curve)


def test_one_size_predicts_the_others():
    """A verify pass of a few tokens costs nearly what one token costs; a prompt costs far more."""
    times = learnt([(1, 0.04)])

    assert times(8) == pytest.approx(0.04, rel=0.25)
    assert times(512) > 10 * times(1)


def test_what_was_not_seen_for_long_is_forgotten():
    """Times of a size from before a thousand other passes do not count any more."""
    times = learnt([(1, 9.0)] + [(5, 0.04)] * 1000)

    assert times(1) < 0.05


def test_nothing_is_known_before_the_first_pass():
    """Then a pass takes no time, and so nothing is waited for."""
    assert PassTimes()(7) == 0.0
