"""Who gets into a pass: decodes and prompts side by side, in turn, and drafts with what is left."""

import pytest

from engine_harness import Harness
from paceline.core.generation import ChoiceStart
from paceline.errors import OverloadedError
from script_drafters import ScriptDrafter
from toy_target import ToyRunner, hashed_law

VOCAB = 12
LAW = hashed_law(VOCAB, scale=2.0)


def prompt(number, length):
    return tuple((number * 5 + n * n) % VOCAB for n in range(length))


def harness(**options):
    return Harness(ToyRunner(LAW, VOCAB, num_pages=2048), **{"prefix_cache": False, **options})


def steps_to_first_token(engine, key, most=200):
    for step in range(1, most):
        engine.engine.step()
        if engine.ids(key):
            return step
    raise AssertionError(f"no token of {key} after {most} steps")


def test_a_long_prompt_delays_no_token_of_those_that_decode():
    """Each step of its prefill commits a token of every decoding sequence."""
    engine = harness(step_tokens=16)
    for number in range(4):
        engine.submit(f"r{number}/1", prompt(number, 3), max_tokens=60)
    while not all(engine.ids(f"r{number}/1") for number in range(4)):
        engine.engine.step()
    engine.submit("long/1", prompt(9, 400))
    before = [len(engine.ids(f"r{number}/1")) for number in range(4)]
    steps = steps_to_first_token(engine, "long/1")

    assert steps == -(-400 // 12)
    assert [len(engine.ids(f"r{number}/1")) for number in range(4)] == [count + steps for count in before]


def test_many_decodes_and_their_drafts_do_not_starve_a_prompt():
    """More sequences decode than a pass should have tokens, each with drafts: the prompt gets a quarter of it."""
    drafter = ScriptDrafter(lambda *_: (1, 2, 3, 4))
    engine = harness(step_tokens=16, max_running=32, drafters={"wrong": drafter})
    for number in range(20):
        engine.submit(f"r{number}/1", prompt(number, 3), drafter="wrong", max_tokens=200)
    while not all(engine.ids(f"r{number}/1") for number in range(20)):
        engine.engine.step()
    engine.submit("late/1", prompt(9, 40))

    assert steps_to_first_token(engine, "late/1") == 10


def test_short_prompts_pass_long_ones_and_the_oldest_gets_its_half():
    """Behind three prompts of 400 tokens, one of 8 is answered in the first pass; the oldest is not put off for it."""
    engine = harness(step_tokens=40)
    for number in range(3):
        engine.submit(f"long{number}/1", prompt(number, 400))
    engine.engine.step()
    engine.submit("short/1", prompt(7, 8), max_tokens=2)

    assert steps_to_first_token(engine, "short/1") == 1
    computed = [sequence.num_computed for sequence in engine.scheduler.running]
    assert computed[0] >= 20 + 20
    engine.run()


def test_a_resumed_answer_goes_ahead_of_those_that_have_not_begun():
    """It is the next to be admitted, behind other resumed ones, whatever waits; what runs goes on."""
    engine = harness(max_running=1)
    engine.submit("running/1", prompt(0, 3), max_tokens=3)
    engine.engine.step()
    for number in range(3):
        engine.submit(f"new{number}/1", prompt(number, 3), max_tokens=2)
    for number in range(2):
        resumed = (ChoiceStart(0, (1, 2), text_offset=2),)
        engine.submit(f"resumed{number}/2", prompt(number, 3), max_tokens=4, resumed=resumed)

    engine.run()

    order = sorted(engine.chunks, key=list(engine.chunks).index)
    assert order == ["running/1", "resumed0/2", "resumed1/2", "new0/1", "new1/1", "new2/1"]


def test_a_resumed_answer_is_not_refused_as_one_too_many():
    """A full queue refuses new requests; half of this answer is with its client already."""
    engine = harness(max_running=1, max_waiting=1)
    engine.submit("running/1", prompt(0, 3))
    engine.engine.step()
    engine.submit("waiting/1", prompt(1, 3))
    with pytest.raises(OverloadedError):
        engine.submit("new/1", prompt(2, 3))

    engine.submit("resumed/2", prompt(3, 3), resumed=(ChoiceStart(0, (1,), text_offset=1),))
    engine.run()

    assert len(engine.ids("resumed/2")) == 24 - 1
