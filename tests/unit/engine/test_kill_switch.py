"""Speculation turned off and on under running answers, for all drafter groups or for one."""

from dataclasses import replace

import pytest

from engine_harness import Harness
from script_drafters import ScriptDrafter, oracle
from toy_target import ToyRunner, hashed_law

VOCAB = 12
PROMPT = (1, 2, 3)
LAW = hashed_law(VOCAB, scale=2.0)
OPTIONS = {"temperature": 1.0, "max_tokens": 80, "seed": 3}


@pytest.fixture(scope="module")
def reference():
    harness = Harness(ToyRunner(LAW, VOCAB))
    harness.submit("plain/1", PROMPT, **OPTIONS)
    harness.run()
    return harness.ids("plain/1")


@pytest.fixture
def harness(reference):
    drafters = {name: ScriptDrafter(oracle(reference, len(PROMPT))) for name in ("a", "b")}
    return Harness(ToyRunner(LAW, VOCAB), drafters, local=False)


def switch(harness, **changes):
    harness.speculation.apply(replace(harness.speculation._settings, **changes))


def drafted(harness, group, *, steps):
    """Drafts that the passes of some steps contain."""
    before = harness.counted("DRAFTED_TOKENS", group=group)
    for _ in range(steps):
        harness.engine.step()
    return harness.counted("DRAFTED_TOKENS", group=group) - before


def test_one_group_is_turned_off_and_the_other_goes_on(harness, reference):
    """From the very next pass on no draft of the group is in it; answers of both groups keep their ids."""
    for group in ("a", "b"):
        harness.submit(f"{group}/1", PROMPT, drafter=group, **OPTIONS)
    drafted(harness, "a", steps=3)
    switch(harness, disabled_groups=frozenset({"a"}))

    assert drafted(harness, "a", steps=4) == 0
    assert drafted(harness, "b", steps=4) > 0
    harness.run()
    assert harness.ids("a/1") == harness.ids("b/1") == reference
    assert (harness.last("a/1").stats.switches, harness.last("b/1").stats.switches) == (1, 0)


@pytest.mark.parametrize("off", [{"enabled": False}, {"disabled_groups": frozenset({"a"})}], ids=["all", "group"])
def test_an_answer_that_begins_while_it_is_off_speculates_when_it_is_on_again(harness, reference, off):
    """It has its session all the time; the drafter is told what it missed, however much that is."""
    switch(harness, **off)
    harness.submit("a/1", PROMPT, drafter="a", **OPTIONS)
    assert drafted(harness, "a", steps=40) == 0
    switch(harness, enabled=True, disabled_groups=frozenset())

    assert drafted(harness, "a", steps=4) > 0
    harness.run()
    assert harness.ids("a/1") == reference
    assert harness.last("a/1").stats.switches == 1
    assert harness.counted("SUSPENSIONS", group="a") == 0


class SlowDrafter(ScriptDrafter):
    """Scripted drafts; while ``slow`` its replies are kept."""

    slow = False

    def __init__(self, script):
        super().__init__(script)
        self.kept = []

    def collect(self, timeout_s):
        replies = [*self.kept, *super().collect(timeout_s)]
        self.kept = replies if self.slow else []
        return [] if self.slow else replies


def test_a_drafter_may_take_its_time_to_catch_up(reference):
    """Woken late in an answer, it computes the whole text first; that it is not taken for one that cannot keep up."""
    drafter = SlowDrafter(oracle(reference, len(PROMPT)))
    harness = Harness(ToyRunner(LAW, VOCAB), {"a": drafter}, local=False)
    switch(harness, enabled=False)
    harness.submit("a/1", PROMPT, drafter="a", **OPTIONS)
    drafted(harness, "a", steps=40)
    drafter.slow = True
    switch(harness, enabled=True)
    drafted(harness, "a", steps=6)
    drafter.slow = False

    assert drafted(harness, "a", steps=3) > 0
    assert harness.counted("SUSPENSIONS", group="a") == 0
    harness.run()
    assert harness.ids("a/1") == reference


def test_a_pause_is_no_reply_time(reference):
    """A reply to what was asked for before it, and that comes after it, says nothing about how long replies take."""
    clock = [0.0]
    drafter = SlowDrafter(oracle(reference, len(PROMPT)))
    harness = Harness(ToyRunner(LAW, VOCAB), {"a": drafter}, local=False, clock=lambda: clock[0])
    harness.submit("a/1", PROMPT, drafter="a", **OPTIONS)
    drafted(harness, "a", steps=4)
    drafter.slow = True
    drafted(harness, "a", steps=1)
    switch(harness, enabled=False)
    drafted(harness, "a", steps=1)
    clock[0] += 100.0
    switch(harness, enabled=True)
    drafted(harness, "a", steps=1)
    drafter.slow = False
    drafted(harness, "a", steps=4)

    assert harness.speculation._exchange.groups["a"].reply_times.expected(4).mean_s < 1.0
    harness.run()
    assert harness.ids("a/1") == reference
