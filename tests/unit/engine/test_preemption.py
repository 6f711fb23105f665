"""When pages run short unused prefixes go first, then drafts, then the youngest sequence; no text shows it."""

import itertools

import pytest

from engine_harness import Harness
from paceline.engine.step_plan import StepPlan
from paceline.errors import ContextLengthExceededError
from script_drafters import ScriptDrafter, oracle
from toy_target import ToyRunner, hashed_law

VOCAB = 12
LAW = hashed_law(VOCAB, scale=2.0)


def prompt(number, length=20):
    return tuple((number + n * n) % VOCAB for n in range(length))


def alone(number, length=20, **options):
    """What a request gives on an empty machine."""
    harness = Harness(ToyRunner(LAW, VOCAB), prefix_cache=False)
    harness.submit("alone/1", prompt(number, length), **options)
    harness.run()
    return harness.ids("alone/1"), harness.text("alone/1")


@pytest.mark.parametrize("prefix_cache", [True, False])
@pytest.mark.parametrize("page_size", [1, 4])
def test_pre_empted_answers_are_the_same_and_nothing_is_sent_twice(page_size, prefix_cache):
    """Four sequences and pages for little more than two of them: all end as on an empty machine, chunk by chunk."""
    options = {"temperature": 1.0, "max_tokens": 90, "frequency_penalty": 0.5, "stop": ("ab",), "min_tokens": 60}
    harness = Harness(ToyRunner(LAW, VOCAB, page_size=page_size, num_pages=240 // page_size), prefix_cache=prefix_cache)
    for number in range(4):
        harness.submit(f"r{number}/1", prompt(number), seed=number, **options)
    harness.run()

    assert harness.counted("PREEMPTIONS") >= 2
    for number in range(4):
        key = f"r{number}/1"
        assert (harness.ids(key), harness.text(key)) == alone(number, seed=number, **options)
        chunks = harness.of(key)
        assert [chunk.first_index for chunk in chunks] == [
            sum(len(chunk.token_ids) for chunk in chunks[:place]) for place in range(len(chunks))
        ]


def test_only_the_youngest_is_pre_empted_and_never_over_and_over():
    """The oldest never gives way; each pre-emption is paid for with many tokens of others."""
    harness = Harness(ToyRunner(LAW, VOCAB, page_size=1, num_pages=240))
    for number in range(4):
        harness.submit(f"r{number}/1", prompt(number), max_tokens=90)
    sequences = list(harness.scheduler.waiting)
    while harness.engine.has_work:
        before = [sequence.preemptions for sequence in sequences]
        running = list(harness.scheduler.running)
        harness.engine.step()
        for sequence, count in zip(sequences, before, strict=True):
            if sequence.preemptions > count:
                assert sequence.arrival == max(other.arrival for other in running)

    assert sequences[0].preemptions == 0
    assert 0 < sum(sequence.preemptions for sequence in sequences) <= 6


def test_drafts_are_given_up_before_anybody_is_pre_empted():
    """One sequence that just fits draws no look-ahead from nowhere: its drafts shrink to what is free, then end."""
    reference = alone(0, max_tokens=44)[0]
    drafter = ScriptDrafter(oracle(reference, 20))
    harness = Harness(ToyRunner(LAW, VOCAB, page_size=1, num_pages=64), {"right": drafter})
    harness.submit("old/1", prompt(0), max_tokens=44, drafter="right", max_draft_tokens=8)
    harness.run()
    assert harness.ids("old/1") == reference
    assert harness.last("old/1").stats.rounds < 12

    crowded = Harness(ToyRunner(LAW, VOCAB, page_size=1, num_pages=88), {"right": drafter})
    crowded.submit("old/1", prompt(0), max_tokens=44, drafter="right", max_draft_tokens=8)
    crowded.submit("young/1", prompt(1, 4), max_tokens=20)
    crowded.run()
    assert crowded.ids("old/1") == reference
    assert crowded.counted("PREEMPTIONS") == 0


def test_look_ahead_is_promised_for_one_pass_only():
    """While the committed tokens of two answers fit the pool, none is sent back for the room of drafts."""
    drafter = ScriptDrafter(lambda *_: (1, 2, 3, 4, 5, 6, 7, 8))
    harness = Harness(ToyRunner(LAW, VOCAB, page_size=1, num_pages=104), {"wrong": drafter})
    harness.submit("drafted/1", prompt(0), max_tokens=80, drafter="wrong", max_draft_tokens=8)
    harness.submit("plain/1", prompt(1), max_tokens=80)
    while sum(len(sequence.tokens) for sequence in harness.scheduler.running) < 104 and harness.engine.has_work:
        harness.engine.step()

    assert len(harness.scheduler.running) == 2
    assert harness.counted("PREEMPTIONS") == 0


def test_a_row_that_is_left_out_of_a_pass_gives_its_look_ahead_back_too(monkeypatch):
    """It waits for its drafts without any; an older answer that grows meanwhile sends nobody back."""
    drafter = ScriptDrafter(lambda *_: (1, 2, 3, 4, 5, 6, 7, 8))
    settings = {"prefix_cache": False, "max_draft_tokens": 16, "top_k": 2}
    harness = Harness(ToyRunner(LAW, VOCAB, page_size=4, num_pages=13), {"wrong": drafter}, **settings)
    harness.submit("plain/1", prompt(0, 8), max_tokens=20)
    harness.submit("drafted/1", prompt(1, 8), max_tokens=16, drafter="wrong", max_draft_tokens=16)
    collect, steps, left_out = harness.speculation.collect, itertools.count(), []

    def leaving_out(plan):
        kept = [row for row in plan.rows if not row.max_drafts]
        if next(steps) % 3 and kept:
            left_out.extend(row for row in plan.rows if row.max_drafts)
            plan = StepPlan(kept)
        return collect(plan)

    monkeypatch.setattr(harness.speculation, "collect", leaving_out)
    harness.run()

    assert len(left_out) > 6
    assert harness.counted("PREEMPTIONS") == 0


def test_an_exact_fit_with_look_ahead_does_not_lock_up():
    """Seven pages, one answer of four and one of three, both with drafts: both end, with the plain tokens."""
    drafter = ScriptDrafter(lambda *_: (1, 2, 3, 4))
    harness = Harness(ToyRunner(LAW, VOCAB, page_size=4, num_pages=7), {"wrong": drafter})
    harness.submit("a/1", prompt(0, 8), max_tokens=8, drafter="wrong")
    harness.submit("b/1", prompt(1, 6), max_tokens=6, drafter="wrong")
    harness.run(max_steps=40)

    assert harness.ids("a/1") == alone(0, 8, max_tokens=8)[0]
    assert harness.ids("b/1") == alone(1, 6, max_tokens=6)[0]


def test_what_can_never_fit_is_refused_at_once_and_the_next_one_is_served():
    """A prompt with output beyond the whole pool gets an error that names the limit; nothing waits behind it."""
    harness = Harness(ToyRunner(LAW, VOCAB, page_size=4, num_pages=8))
    with pytest.raises(ContextLengthExceededError, match="32"):
        harness.submit("big/1", prompt(0, 30), max_tokens=3)
    harness.submit("small/1", prompt(0, 30), max_tokens=2)
    harness.run()

    assert len(harness.ids("small/1")) == 2


def test_a_pre_empted_sequence_keeps_its_draft_session_and_comes_before_later_ones():
    """It is not opened a second time, and requests that came after it wait behind it."""
    reference = {number: alone(number, max_tokens=90)[0] for number in range(4)}
    opened = []

    class Opened(ScriptDrafter):
        def open(self, openings):
            opened.extend(opening.session for opening in openings)
            super().open(openings)

    harness = Harness(
        ToyRunner(LAW, VOCAB, page_size=1, num_pages=240), {"some": Opened(lambda context, depth: context[:depth])}
    )
    for number in range(4):
        harness.submit(f"r{number}/1", prompt(number), max_tokens=90, drafter="some")
    orders = []
    while harness.engine.has_work:
        harness.engine.step()
        orders.append([sequence.arrival for sequence in harness.scheduler.waiting])

    assert harness.counted("PREEMPTIONS") > 0
    assert orders == [sorted(order) for order in orders]
    assert sorted(opened) == [f"r{number}/1#0" for number in range(4)]
    assert {number: harness.ids(f"r{number}/1") for number in range(4)} == reference
    harness.engine.check_integrity()


def test_an_abort_while_it_waits_to_come_back_leaves_nothing():
    """A pre-empted sequence whose client has gone holds neither pages nor a session."""
    harness = Harness(ToyRunner(LAW, VOCAB, page_size=1, num_pages=240), {"none": ScriptDrafter(lambda *_: ())})
    for number in range(4):
        harness.submit(f"r{number}/1", prompt(number), max_tokens=90, drafter="none")
    while not harness.counted("PREEMPTIONS"):
        harness.engine.step()
    gone = next(sequence for sequence in harness.scheduler.waiting if sequence.preemptions)
    assert (gone.table, gone.prefix, gone.num_computed) == (None, None, 0)
    harness.engine.abort(gone.key)
    assert 0 < len(harness.ids(gone.key)) < 90
    for number in range(4):
        harness.engine.abort(f"r{number}/1")

    harness.engine.check_integrity()
    assert not harness.engine.has_work
