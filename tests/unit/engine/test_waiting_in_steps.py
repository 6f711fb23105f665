"""The waiting rule in the engine, on a clock that only passes and waits move: what each link does to the speed."""

import functools
import itertools
import random

import pytest

from drafters import CoinDrafter
from engine_harness import Harness
from simulated_link import FakeClock, SimulatedLink, TimedRunner
from toy_target import ToyRunner, hashed_law

VOCAB = 11
LAW = hashed_law(VOCAB)
PASS_S = 0.04
LENGTH = 64
PROMPTS = ((1, 2, 3, 4), (5, 6, 7, 8, 9), (3, 1, 4, 1, 5))


@functools.cache
def references():
    """Prompt and plain answer of every request."""
    harness = Harness(ToyRunner(LAW, VOCAB))
    submit(harness, None)
    harness.run()
    return [prompt + harness.ids(f"r{index}/1") for index, prompt in enumerate(PROMPTS)]


def submit(harness, drafter, *, first_only=False, **options):
    for index, prompt in enumerate(PROMPTS):
        group = None if first_only and index else drafter
        harness.submit(f"r{index}/1", prompt, seed=index, max_tokens=LENGTH, drafter=group, **options)


class Timed:
    """One run on the fake clock; the answers must be the plain ones."""

    def __init__(self, latency_s=None, *, share=0.7, group="g", local=False, requests=None, **options):
        self.clock = FakeClock()
        self.runner = TimedRunner(LAW, VOCAB, clock=self.clock, base_s=PASS_S)
        self.coin = CoinDrafter(references(), vocab_size=VOCAB, share=share)
        self.link = SimulatedLink(self.coin, clock=self.clock, latency_s=latency_s)
        drafter = self.coin if local else self.link
        self.harness = Harness(self.runner, {"g": drafter}, local=local, clock=self.clock, **options)
        submit(self.harness, group, **(requests or {}))
        self.started = self.clock.now

    def run(self):
        self.harness.run()
        assert [p + self.harness.ids(f"r{i}/1") for i, p in enumerate(PROMPTS)] == references()
        return self

    @property
    def tokens_per_s(self):
        return len(PROMPTS) * LENGTH / (self.clock.now - self.started)

    def moves(self, move):
        return self.harness.counted("WAITING_MOVES", move=move)


@functools.cache
def plain_speed():
    return Timed(lambda: None, group=None).run().tokens_per_s


def constant(seconds):
    return lambda: seconds


def dying(after):
    """Prompt for ``after`` messages, then silent for ever."""
    calls = itertools.count()
    return lambda: 0.005 if next(calls) < after else None


def jumping(seed=3):
    """From half to one and a half of 20 ms, now and then 80 ms more."""
    draw = random.Random(seed)
    return lambda: draw.uniform(0.01, 0.03) + (0.08 if draw.random() < 0.05 else 0.0)


LINKS = {
    "5 ms": lambda: constant(0.005),
    "20 ms": lambda: constant(0.02),
    "100 ms": lambda: constant(0.1),
    "jumping": jumping,
    "dead": lambda: constant(None),
    "dies": lambda: dying(12),
}


@pytest.mark.parametrize("link", LINKS)
def test_no_link_makes_the_target_slower_than_plain(link):
    """However slow, irregular or dead the link is, at least 0.97 of the plain speed is left, and the same text."""
    timed = Timed(LINKS[link]()).run()

    assert timed.tokens_per_s >= 0.97 * plain_speed()


def test_a_fast_link_is_waited_for_and_speculation_pays():
    """With replies in an eighth of a pass nearly every round has its drafts."""
    timed = Timed(constant(0.005), share=0.9).run()

    assert timed.tokens_per_s > 1.8 * plain_speed()
    assert timed.moves("wait") > 10 * timed.moves("go") / 9


def test_a_link_slower_than_a_pass_is_never_waited_for_and_its_late_replies_are_used():
    """No row waits longer than one pass; what comes later is re-rooted, counted, and still speeds up."""
    timed = Timed(constant(0.06), share=0.9).run()

    assert timed.moves("wait") == 0
    assert timed.harness.counted("REROOTED_DRAFTS", group="g") > 10
    assert timed.tokens_per_s > 1.1 * plain_speed()


@pytest.mark.parametrize("link", ["20 ms", "jumping", "dies"])
def test_no_step_waits_longer_than_a_pass(link):
    """Measured from the end of one pass to the start of the next."""
    timed = Timed(LINKS[link](), share=0.9)
    ends, forward = [], timed.runner.forward

    def noting(rows):
        logits = forward(rows)
        ends.append(timed.clock.now)
        return logits

    timed.runner.forward = noting
    timed.run()
    longest = max(start - end for end, start in zip(ends, timed.runner.started[1:], strict=False))

    assert timed.moves("wait") > 0
    assert longest <= timed.runner.pass_s(len(PROMPTS) * 5) * 1.05


def test_no_row_is_left_out_twice_in_a_row():
    """A row that lets plain rows go ahead while its drafts come is in the next pass, with or without them."""
    late = itertools.cycle([0.03, 0.03, 0.03, 0.03, 0.03, 0.09])
    timed = Timed(lambda: next(late), share=1.0, requests={"first_only": True, "max_draft_tokens": 8})
    collect, left_out, times = timed.harness.speculation.collect, set(), 0

    def watching(plan):
        nonlocal left_out, times
        gathered = collect(plan)
        kept = {row.sequence for row in gathered.plan.rows}
        missing = {row.sequence for row in plan.rows} - kept
        assert not missing & left_out
        assert gathered.plan.rows or not plan.rows
        left_out, times = missing, times + bool(missing)
        return gathered

    timed.harness.speculation.collect = watching
    timed.run()

    assert times > 3


def test_two_vain_waits_suspend_a_group_and_probes_find_it_again():
    """A dead group is asked in few rounds; when it answers in time again it drafts again."""
    state = {"latency": 0.005}
    timed = Timed(lambda: state["latency"], share=0.9)
    for _ in range(6):
        timed.harness.engine.step()
    state["latency"] = None
    asked_before, steps = timed.link.num_requests, 10
    waits = timed.moves("wait")
    for _ in range(steps):
        timed.harness.engine.step()
    asked = timed.link.num_requests - asked_before
    accepted = timed.harness.counted("ACCEPTED_TOKENS", group="g")
    state["latency"] = 0.005
    timed.run()

    assert timed.harness.counted("SUSPENSIONS", group="g") == 1
    assert asked < steps
    assert waits <= timed.moves("wait")
    assert timed.harness.counted("ACCEPTED_TOKENS", group="g") > accepted + 10


def test_a_probe_is_in_time_also_where_the_drafter_has_lost_the_session():
    """It asks for the whole text first, and meanwhile more is committed; the answer to that counts."""
    state = {"latency": 0.005}
    timed = Timed(lambda: state["latency"], share=0.9)
    for _ in range(6):
        timed.harness.engine.step()
    state["latency"] = None
    for _ in range(10):
        timed.harness.engine.step()
    assert timed.harness.counted("SUSPENSIONS", group="g") == 1
    state["latency"] = 0.005
    timed.coin.sessions.pop([f"r{index}/1#0" for index in range(len(PROMPTS))])
    accepted = timed.harness.counted("ACCEPTED_TOKENS", group="g")
    for _ in range(9):
        timed.harness.engine.step()

    assert timed.harness.counted("ACCEPTED_TOKENS", group="g") > accepted
    timed.run()


def test_a_group_that_never_answered_is_given_up_too():
    """Dead from the first message: after some tokens it is asked in few rounds only."""
    timed = Timed(constant(None)).run()

    assert timed.harness.counted("SUSPENSIONS", group="g") == 1
    assert timed.link.num_requests < 0.75 * timed.runner.num_forwards


def test_a_silent_group_does_not_take_the_waits_of_another():
    """All groups are waited for together, so the one that answers within the time is used in nearly every round."""
    clock = FakeClock()
    runner = TimedRunner(LAW, VOCAB, clock=clock, base_s=PASS_S)
    links = {
        name: SimulatedLink(CoinDrafter(references(), vocab_size=VOCAB, share=1.0), clock=clock, latency_s=latency)
        for name, latency in {"silent": dying(2), "good": constant(0.005)}.items()
    }
    harness = Harness(runner, links, local=False, clock=clock)
    for index, (prompt, group) in enumerate(zip(PROMPTS, ("silent", "good"), strict=False)):
        harness.submit(f"r{index}/1", prompt, seed=index, max_tokens=LENGTH, drafter=group)
    harness.run()

    assert [p + harness.ids(f"r{i}/1") for i, p in enumerate(PROMPTS[:2])] == references()[:2]
    assert harness.last("r1/1").stats.tau > 3
    assert harness.last("r0/1").stats.tau < 1.5


def test_settings_of_zero_patience_never_wait():
    """draft_wait_share 0: drafts are used where they are there, and never waited for."""
    timed = Timed(constant(0.005), share=0.9, wait_share=0.0).run()

    assert timed.moves("wait") + timed.moves("fill") == 0


def test_drafts_that_do_not_pay_are_hardly_asked_for():
    """Drafts that are always wrong make passes longer; once that is known, few rounds ask for any."""
    fixed = Timed(local=True, share=0.0).run()
    adaptive = Timed(local=True, share=0.0, adaptive=True).run()

    assert adaptive.coin.num_proposals < 0.5 * fixed.coin.num_proposals
    assert fixed.tokens_per_s < 0.75 * plain_speed()
    assert adaptive.tokens_per_s > 0.85 * plain_speed()


def test_a_drafter_that_gets_better_is_found_again():
    """Comparisons in few rounds show it, and then its drafts are used."""
    timed = Timed(local=True, share=0.0, adaptive=True)
    for _ in range(25):
        timed.harness.engine.step()
    drafted = timed.harness.counted("DRAFTED_TOKENS", group="g")
    timed.harness.engine.step()
    assert timed.harness.counted("DRAFTED_TOKENS", group="g") == drafted
    timed.coin.share = 1.0
    timed.run()

    assert timed.harness.counted("SHADOW_ACCEPTED_AT", group="g", position="0") > 0


class ShallowDrafter(CoinDrafter):
    """Right at the first ``levels`` of every chain, wrong behind them."""

    levels = 1

    def chain(self, context, num_tokens):
        right = self.truth(context)[:num_tokens]
        return tuple(i if level < self.levels else (i + 1) % VOCAB for level, i in enumerate(right))


def test_deeper_drafts_that_get_better_are_found_again():
    """While one level pays and no more, few rounds ask for two; when all are right, more and more are used."""
    prompts, length = [(1 + index % 10, index % 7, 3) for index in range(16)], 120

    def run(harness, name, drafter=None):
        for index, prompt in enumerate(prompts):
            harness.submit(f"{name}{index}/1", prompt, seed=index, max_tokens=length, drafter=drafter)
        harness.run()
        return [prompt + harness.ids(f"{name}{index}/1") for index, prompt in enumerate(prompts)]

    texts = run(Harness(ToyRunner(LAW, VOCAB)), "plain")
    drafter, clock = ShallowDrafter(texts, vocab_size=VOCAB, share=1.0), FakeClock()
    runner = TimedRunner(LAW, VOCAB, clock=clock, base_s=PASS_S)
    timed = Harness(runner, {"g": drafter}, clock=clock, adaptive=True)

    assert run(timed, "before", "g") == texts
    drafted = timed.counted("DRAFTED_TOKENS", group="g") / timed.counted("ROUNDS", group="g")
    drafter.levels = 99
    assert run(timed, "after", "g") == texts
    assert run(timed, "later", "g") == texts

    assert drafted < 1.5
    assert timed.last("later0/1").stats.tau > 1.05 * timed.last("before0/1").stats.tau


class CostlyDrafter(CoinDrafter):
    """One level keeps the target's thread for ``level_s``."""

    def __init__(self, *args, clock, level_s, **options):
        super().__init__(*args, **options)
        self._clock, self._level_s = clock, level_s

    def collect(self, timeout_s):
        replies = super().collect(timeout_s)
        self._clock.now += self._level_s * max((max(reply.tree.depths, default=0) for reply in replies), default=0)
        return replies


@pytest.mark.parametrize(("level_s", "gain"), [(0.1 * PASS_S, 1.1), (2.0 * PASS_S, 0.8)])
def test_levels_that_take_the_targets_time_are_drafted_as_far_as_they_pay(level_s, gain):
    """At an acceptance of 0.5: faster than plain where one level is cheap, near to it where one costs two passes."""
    speeds, clock = {}, FakeClock()
    for adaptive in (False, True):
        drafter = CostlyDrafter(references(), vocab_size=VOCAB, share=0.5, clock=clock, level_s=level_s)
        runner = TimedRunner(LAW, VOCAB, clock=clock, base_s=PASS_S)
        harness, started = Harness(runner, {"g": drafter}, clock=clock, adaptive=adaptive), clock.now
        submit(harness, "g")
        harness.run()
        assert [p + harness.ids(f"r{i}/1") for i, p in enumerate(PROMPTS)] == references()
        speeds[adaptive] = len(PROMPTS) * LENGTH / (clock.now - started)

    assert speeds[True] > gain * plain_speed()
    assert speeds[True] > 1.1 * speeds[False]
