"""Whatever happens on the link, the engine's answers are those of plain decoding; only speed may suffer."""

import dataclasses

import pytest

from drafters import (
    AntiOracleDrafter,
    CoinDrafter,
    CrashingDrafter,
    LyingDrafter,
    OracleDrafter,
    SlowDrafter,
    StaleDrafter,
)
from fault_transport import Faults
from linked_engine import GROUP, PROMPTS, VOCAB, linked, plain_answers, references
from paceline.telemetry import catalogue
from peers import TARGET, wait_until

FAULTS = {
    "none": Faults(),
    "delayed": Faults(delay_s=0.002),
    "dropped": Faults(drop=0.2),
    "doubled": Faults(duplicate=0.4),
    "swapped": Faults(reorder=0.3, held_back_s=0.006),
    "all at once": Faults(delay_s=0.004, drop=0.1, duplicate=0.2, reorder=0.2, held_back_s=0.006),
}


@pytest.mark.parametrize("kind", FAULTS)
def test_faulty_messages_change_no_token(kind):
    """Lost, late, doubled and swapped messages leave every answer as it is, and drafts still get through."""
    drafter = CoinDrafter(references(), vocab_size=VOCAB, share=0.8)
    with linked(drafter, faults=FAULTS[kind]) as made:
        made.submit()
        made.run()
        assert made.answers() == plain_answers()
        assert made.accepted > 0
        wait_until(lambda: made.harness.speculation.num_sessions == 0)


@pytest.mark.parametrize("lie", LyingDrafter.LIES)
def test_lying_drafter_is_not_believed(lie):
    """Proposals that break a rule are dropped and counted before the engine sees them."""
    with linked(LyingDrafter(references(), lie=lie, vocab_size=TARGET.vocabulary.size)) as made:
        made.submit()
        made.run()
        assert made.answers() == plain_answers()
        assert made.metrics.value(catalogue.DROPPED_DRAFTS, group=GROUP, reason="invalid") > 0
        assert made.accepted == 0


@pytest.mark.parametrize(
    "drafter",
    [
        lambda: AntiOracleDrafter(references(), vocab_size=VOCAB),
        lambda: StaleDrafter(references()),
        lambda: CrashingDrafter(references(), num_good=4),
    ],
    ids=["always wrong", "stale", "crashing"],
)
def test_bad_drafter_changes_no_token(drafter):
    """A drafter that is wrong, answers for older text or raises costs speed only."""
    with linked(drafter()) as made:
        made.submit()
        made.run()
        assert made.answers() == plain_answers()


def test_drafter_killed_in_mid_round_then_replaced():
    """Rows under way are lost with the process; the next replica is brought up to date and drafts again."""
    length = 80
    oracle_text = references(length=length)
    with linked(OracleDrafter(oracle_text)) as made:
        made.submit(length=length)
        while made.accepted < 5:
            made.step()
        first = made.link.incarnation
        made.kill("a")
        longest_s = max(made.step() for _ in range(10))
        assert longest_s < 0.5
        assert not made.link.live
        accepted_before = made.accepted

        made.start("b", OracleDrafter(oracle_text))
        wait_until(lambda: made.link.live)
        assert made.link.incarnation != first
        made.run()
        assert made.answers() == plain_answers(length=length)
        assert made.accepted > accepted_before


def test_drafter_restarted_with_empty_state_at_the_same_address():
    """A new process at the old address knows nothing, says so, and is given the whole context."""
    with linked(OracleDrafter(references())) as made:
        made.submit()
        while made.accepted < 5:
            made.step()
        made.kill("a")
        made.start("a", OracleDrafter(references()))
        wait_until(lambda: made.link.live)
        accepted_before = made.accepted
        made.run()
        assert made.answers() == plain_answers()
        assert made.accepted > accepted_before


def test_drafter_that_answers_too_late_stalls_nobody():
    """Where every answer takes many passes, a step waits for a bounded share of a pass and goes on plain."""
    with linked(SlowDrafter(references(), delay_s=0.5)) as made:
        made.submit()
        longest_s = made.run()
        assert longest_s < 0.4
        assert made.answers() == plain_answers()


def test_no_drafter_at_all_is_plain_decoding():
    """With nobody to link to, requests run plain and the reason is there to read."""
    with linked() as made:
        made.submit()
        made.run()
        assert made.answers() == plain_answers()
        assert made.link.detail == "no replica"


def test_refused_drafter_is_named_and_requests_go_on_plain():
    """A drafter of another vocabulary is refused once, by field name, and never asked to draft."""
    other = dataclasses.replace(TARGET.vocabulary, special_ids=(("eos", 3),))
    with linked() as made:
        servicer = made.start("a", OracleDrafter(references()), vocabulary=other)
        wait_until(lambda: "vocabulary.special_ids.eos" in made.link.detail)
        made.submit()
        made.run()
        assert made.answers() == plain_answers()
        assert not made.link.live
        assert made.transport.num_connects == 1
        assert servicer.load.sessions == 0

        made.start("b", OracleDrafter(references()))
        wait_until(lambda: made.link.live)


def test_finished_requests_leave_no_session_at_the_drafter():
    """When all answers are done the drafter holds nothing, without waiting for a lease."""
    with linked(OracleDrafter(references())) as made:
        made.submit()
        while made.accepted < 5:
            made.step()
        assert made.drafter_sessions == len(PROMPTS)
        made.run()
        wait_until(lambda: made.drafter_sessions == 0, 1.0)


def test_dead_target_leaves_no_session_at_the_drafter():
    """A target whose stream breaks in mid-answer frees its sessions at once; a restarted one starts afresh."""
    with linked(OracleDrafter(references())) as made:
        made.submit()
        while made.accepted < 5:
            made.step()
        made.link.shutdown()
        wait_until(lambda: made.drafter_sessions == 0, 1.0)


def test_cancel_between_prefill_and_first_draft_strands_nothing():
    """A target that falls silent right after the drafter has prefilled costs it a lease, no more."""
    with linked(OracleDrafter(references()), ttl_s=0.2) as made:
        made.submit()
        made.step()  # admission: the drafter is brought up to date
        wait_until(lambda: made.drafter_sessions == len(PROMPTS))
        wait_until(lambda: made.drafter_sessions == 0, 2.0)  # nobody closes, nobody asks
        assert made.link.live
        made.run()
        assert made.answers() == plain_answers()


def test_replicas_are_replaced_by_the_list():
    """When all replicas are replaced the link moves within 2 s; a replica that leaves is left alone."""
    with linked(OracleDrafter(references())) as made:
        made.start("b", OracleDrafter(references()))
        for name in ("a", "b"):
            made.kill(name)
        made.start("c", OracleDrafter(references()))
        wait_until(lambda: made.link.live, 2.0)
        linked_to_c = made.link.incarnation
        made.start("d", OracleDrafter(references()))
        made.forget("c")
        wait_until(lambda: made.link.live and made.link.incarnation != linked_to_c, 2.0)
        made.submit()
        made.run()
        assert made.answers() == plain_answers()
        assert made.accepted > 0
