"""The waiting rule against an enumeration of its moves, and its bounds on any snapshot."""

import itertools
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from paceline.engine.step_time import PassTimes
from paceline.engine.waiting import Action, Outstanding, Snapshot, choose, prompt_worth

PASS = PassTimes(((1.0, 0.040), (64.0, 0.120)))
EPS = 1e-9


def row(*, reply_s=0.005, latest_s=0.008, expected=3.0, deadline_s=2.0, waited_s=0.0, left_out=False):
    return Outstanding(1, 4, expected, reply_s, latest_s, deadline_s, waited_s, left_out)


def snapshot(*rows, ready_tokens=0, ready_expected=0.0, **more):
    return Snapshot(ready_tokens, ready_expected, rows, PASS, **more)


rows = st.builds(
    lambda tokens, drafts, expected, reply, deviation, deadline, waited, left_out, held: Outstanding(
        tokens,
        drafts,
        min(expected, 1.0 + drafts),
        max(0.0, reply),
        reply + deviation,
        deadline,
        waited,
        left_out,
        held,
        1.0 + held / 2,
    ),
    st.integers(1, 3),
    st.integers(1, 12),
    st.floats(1, 9),
    st.sampled_from([-0.01, 0.001, 0.01, 0.03, 0.05, 0.2, math.inf]),
    st.sampled_from([0.0, 0.004, 0.02]),
    st.sampled_from([-0.1, 0.01, 0.05, 2.0, math.inf]),
    st.sampled_from([0.0, 0.01, 0.039, 0.06]),
    st.booleans(),
    st.sampled_from([0, 0, 1, 3]),
)
curves = st.lists(st.tuples(st.integers(1, 600), st.floats(0.001, 0.5)), max_size=4).map(
    lambda points: PassTimes(
        tuple(
            zip(
                sorted({float(tokens) for tokens, _ in points}),
                sorted(seconds for _, seconds in points),
                strict=False,
            )
        )
    )
)
snapshots = st.builds(
    Snapshot,
    st.integers(0, 300),
    st.floats(0, 20),
    st.lists(rows, max_size=6).map(tuple),
    curves,
    st.sampled_from([0.0, 0.005, 0.05]),
    st.sampled_from([0.0, 0.5, 1.0]),
)


def moves(s):
    """Every (action, rows, rate) of the design's formulas, for every set of rows that the rule may wait for."""
    everyone = range(len(s.outstanding))
    yield Action.GO, (), _rate(s.ready_expected + sum(o.held_expected for o in s.outstanding), _pass(s, ()))
    cuts = {o.reply_latest_s for o in s.outstanding if 0 < o.reply_latest_s < math.inf}
    for cut in cuts:
        chosen = tuple(i for i in everyone if 0 < s.outstanding[i].reply_latest_s <= cut)
        picked = [s.outstanding[i] for i in chosen]
        others = [s.outstanding[i] for i in everyone if i not in chosen]
        plain = s.ready_expected + sum(o.held_expected for o in others)
        both = plain + sum(o.expected_tokens for o in picked)
        joint = _pass(s, chosen)
        reply = max(o.reply_s for o in picked)
        latest = max(o.reply_latest_s for o in picked)
        cap = min(_per_round(picked) - 1, s.patience) * joint
        deadline = min(o.deadline_s for o in picked)
        bound = min(cap - max(s.waited_s, *(o.waited_s for o in s.outstanding)), deadline)
        if bound > 0 and reply <= bound:
            yield Action.WAIT, chosen, _rate(both, latest + joint)
        rest = s.ready_tokens + sum(o.tokens + o.held_drafts for o in others)
        gap = s.pass_s(rest)
        bound = min(cap - max(o.waited_s for o in picked), deadline)
        if rest and max(gap, reply) <= bound and not any(o.left_out for o in picked):
            yield Action.FILL, chosen, _rate(plain + both, max(gap, latest) + joint)


def _pass(s, chosen):
    drafts = sum(o.drafts if i in chosen else o.held_drafts for i, o in enumerate(s.outstanding))
    return s.pass_s(s.ready_tokens + sum(o.tokens for o in s.outstanding) + drafts)


def _per_round(picked):
    return sum(o.expected_tokens for o in picked) / sum(o.held_expected for o in picked)


def _rate(tokens, seconds):
    return tokens / seconds if seconds > 0 else math.inf


@given(snapshots)
def test_the_best_of_all_moves_is_taken(s):
    """Of wait, fill and go, for whichever rows, none within the bounds promises more tokens per second."""
    move = choose(s)
    found = list(moves(s))

    assert any((action, chosen) == (move.action, move.rows) for action, chosen, _ in found)
    assert move.rate == pytest.approx(max(rate for *_, rate in found))


@given(snapshots)
def test_no_move_passes_its_bounds(s):
    """Neither (E-1) passes, nor one pass for any row, nor a deadline; and a wait is always a wait."""
    move = choose(s)
    if move.action is Action.GO:
        assert move.rows == ()
        return
    chosen = [s.outstanding[i] for i in move.rows]
    joint = _pass(s, move.rows)
    per_round = _per_round(chosen)
    if move.action is Action.WAIT:
        spent = move.longest_s
        waiting = [s.waited_s + spent, *(o.waited_s + spent for o in s.outstanding)]
        assert spent > 0
    else:
        others = [o for i, o in enumerate(s.outstanding) if i not in move.rows]
        rest = s.ready_tokens + sum(o.tokens + o.held_drafts for o in others)
        spent = s.pass_s(rest)
        waiting = [o.waited_s + spent for o in chosen]
        assert rest > 0
        assert not any(o.left_out for o in chosen)
    assert max(waiting) <= s.patience * joint + EPS
    assert max(waiting) <= (per_round - 1) * joint + EPS
    assert spent <= min(o.deadline_s for o in chosen) + EPS
    assert all(0 < o.reply_latest_s < math.inf for o in chosen)


def test_a_near_reply_is_worth_a_wait_and_a_far_one_is_not():
    """5 ms for two more tokens of 40 ms each: wait. 100 ms: go at once."""
    assert choose(snapshot(row())).action is Action.WAIT
    assert choose(snapshot(row(reply_s=0.1, latest_s=0.1))).action is Action.GO


def test_drafts_that_are_rarely_accepted_are_not_waited_for():
    """Where a round with drafts commits hardly more than one token, a wait costs more than it brings."""
    assert choose(snapshot(row(expected=1.05))).action is Action.GO


def test_drafts_left_of_an_older_reply_make_waiting_worth_less():
    """A row that has some drafts at hand goes with them unless the new ones are near."""
    held = {"tokens": 1, "drafts": 4, "expected_tokens": 3.0, "deadline_s": 2.0}
    far = {"reply_s": 0.03, "reply_latest_s": 0.03}
    bare = choose(snapshot(Outstanding(**held, **far)))
    some = choose(snapshot(Outstanding(**held, **far, held_drafts=2, held_expected=2.2)))
    near = choose(snapshot(Outstanding(**held, reply_s=0.002, reply_latest_s=0.003, held_drafts=2, held_expected=2.2)))

    assert [move.action for move in (bare, some, near)] == [Action.WAIT, Action.GO, Action.WAIT]


def test_a_prompt_chunk_goes_into_the_gap():
    """A long prompt runs while the drafts of others are under way, but is not run alone for a reply that is near."""
    prompt = {"ready_tokens": 60, "ready_expected": prompt_worth(60, PASS)}
    far = choose(snapshot(row(reply_s=0.06, latest_s=0.08, expected=4.0), **prompt))
    near = choose(snapshot(row(reply_s=0.003, latest_s=0.004, expected=4.0), **prompt))

    assert (far.action, far.rows) == (Action.FILL, (0,))
    assert (near.action, near.rows) == (Action.WAIT, (0,))


def test_a_row_that_was_left_out_is_not_left_out_again():
    """Where leaving it out would be best it goes, or is waited for, all the same."""
    far = {"reply_s": 0.03, "latest_s": 0.04, "expected": 6.0}
    company = {"ready_tokens": 6, "ready_expected": 6.0}

    assert choose(snapshot(row(**far), **company)).action is Action.FILL
    assert choose(snapshot(row(**far, left_out=True), **company)).action is not Action.FILL


def test_the_worth_of_a_prompt_chunk_is_its_time():
    """In tokens of one row that decodes plainly; a chunk that costs no more than a token is worth one."""
    assert prompt_worth(0, PASS) == 0.0
    assert prompt_worth(1, PASS) == 1.0
    assert prompt_worth(64, PASS) == pytest.approx(3.0)
    assert prompt_worth(64, PassTimes()) == 0.0


def test_one_row_with_a_far_reply_does_not_keep_the_others():
    """The rule waits for the near reply alone; the far row goes into the pass without drafts."""
    move = choose(snapshot(row(reply_s=0.2, latest_s=0.3), row()))

    assert (move.action, move.rows) == (Action.WAIT, (1,))


@pytest.mark.parametrize("waited_s", [0.0, 0.01, 0.03, 0.0399])
def test_what_a_row_has_waited_counts(waited_s):
    """The wait that is left is what one pass leaves of it."""
    move = choose(snapshot(row(latest_s=0.05, waited_s=waited_s, expected=5.0)))
    left_s = PASS(5) - waited_s

    assert move.longest_s == pytest.approx(min(0.05, left_s))


def test_without_a_measured_pass_nothing_waits():
    """The first step of a process goes at once."""
    s = Snapshot(0, 0.0, (row(),), PassTimes())

    assert choose(s).action is Action.GO


def test_patience_of_zero_never_waits():
    """The tunable at 0 turns waiting and leaving out off."""
    for ready, latest in itertools.product((0, 4), (0.001, 0.02)):
        s = snapshot(row(reply_s=latest, latest_s=latest, expected=5.0), ready_tokens=ready, patience=0.0)
        assert choose(s).action is Action.GO
