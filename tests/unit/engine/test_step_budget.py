"""Shares of a pass: everybody gets on, in every pass, and drafts have what is left."""

import random
from dataclasses import dataclass

import pytest

from paceline.engine.step_budget import share_drafts, share_prefill, shares


@dataclass(eq=False)
class Prompt:
    """As much of a sequence as the shares look at."""

    arrival: int
    num_missing: int


@pytest.mark.parametrize("seed", range(3))
def test_neither_side_starves_and_no_pass_outgrows_its_bound(seed):
    """Prompts get a quarter of a pass, or all that they want; drafts never take it, and the pass stays bounded."""
    rng = random.Random(seed)
    for _ in range(500):
        step, decoding = rng.randint(1, 64), rng.randint(0, 80)
        drafts, prefill = rng.choice((0, rng.randint(0, 200))), rng.choice((0, rng.randint(1, 200)))
        given = shares(step, num_decoding=decoding, wanted_drafts=drafts, wanted_prefill=prefill)
        quarter = min(prefill, max(1, step // 4))

        assert quarter <= given.prefill <= prefill
        assert 0 <= given.drafts <= drafts
        assert decoding + given.prefill + given.drafts <= max(step, decoding + quarter)
        unused = step - decoding - given.prefill - given.drafts
        assert unused <= 0 or (given.prefill, given.drafts) == (prefill, drafts)


def test_drafts_are_shared_evenly_as_far_as_they_are_wanted():
    """Nobody gets a second draft while another wants a first one."""
    assert share_drafts([5, 5, 5, 5], 8) == [2, 2, 2, 2]
    assert share_drafts([5, 1, 5], 9) == [3, 1, 5]
    assert share_drafts([5, 5, 5], 2) == [1, 1, 0]
    assert share_drafts([5, 5], 0) == [0, 0]
    assert share_drafts([], 3) == []


def test_a_short_prompt_does_not_wait_for_a_long_one():
    """Beside a prompt of thousands of tokens, a short one is done in its first pass."""
    long, short, middle = Prompt(1, 8000), Prompt(3, 50), Prompt(2, 400)
    given = share_prefill([long, middle, short], 512)

    assert given == {long: 256, short: 50, middle: 206}


def test_a_long_prompt_is_not_put_off_for_ever_by_short_ones():
    """With new short prompts in every pass, the oldest still gets half of each."""
    long = Prompt(1, 2000)
    passes = 0
    while long.num_missing:
        prompts = [long, *(Prompt(2 + passes * 9 + n, 60) for n in range(9))]
        given = share_prefill(prompts, 100)
        long.num_missing -= given[long]
        passes += 1
        assert sum(given.values()) == 100

    assert passes == 40


def test_what_the_oldest_leaves_goes_to_others_and_what_others_leave_to_it():
    """No token of the budget is left while somebody wants one."""
    assert share_prefill([Prompt(1, 5), other := Prompt(2, 100)], 40)[other] == 35
    assert share_prefill([oldest := Prompt(1, 100), Prompt(2, 5)], 40)[oldest] == 35
    assert share_prefill([], 40) == {}
