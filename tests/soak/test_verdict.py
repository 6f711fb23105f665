"""The soak's judge: what it must not let pass, and what it must."""

import copy
import random

import pytest

from paceline.core.generation import TokenLogprob
from paceline.core.plans import SpeculationPreference
from soak.faults import Fault, Incident, draw_schedule
from soak.hearing import HeardChoice, Hearing
from soak.jobs import Door, Job, Manner
from soak.load import Fate
from soak.malformed import GRPC_CASES, REST_CASES
from soak.run import _excused
from soak.truth import TrueChoice, Truth
from soak.verdict import Kind, Verdict, is_busy, judge
from soak.watch import lacks_in, leaks_in

SEED = 11
TRUTH = Truth(
    prompt_tokens=3,
    choices=[
        TrueChoice([5, 6, 7], "abc", "length", [TokenLogprob(i, -0.5 * i) for i in (5, 6, 7)]),
        TrueChoice([8], "d", "stop", [TokenLogprob(8, -1.0)]),
    ],
)


def job(manner: Manner = Manner.WHOLE, door: Door = Door.GRPC, case: int = 0) -> Job:
    return Job(0, 0, door, manner, SpeculationPreference(), case=case)


def whole(*, with_ids: bool = True) -> Hearing:
    """A client that heard the right answer."""
    choices = {
        index: HeardChoice(
            list(true.ids) if with_ids else None, true.text, true.finish, [entry.logprob for entry in true.logprobs]
        )
        for index, true in enumerate(TRUTH.choices)
    }
    return Hearing(choices=choices, ended=True, prompt_tokens=3, completion_tokens=4, seed=SEED)


def verdict(hearing: Hearing, asked: Job | None = None) -> Kind:
    return judge(asked or job(), TRUTH, hearing, SEED).kind


@pytest.mark.parametrize("with_ids", [True, False])
def test_the_right_answer_is_right(with_ids):
    """Over either door: one of them sends no ids."""
    assert verdict(whole(with_ids=with_ids)) is Kind.RIGHT


def spoil_text(hearing: Hearing) -> None:
    hearing.choices[0].text = "abx"


def drop_chunk(hearing: Hearing) -> None:
    hearing.choices[0].ids, hearing.choices[0].text = [5, 7], "ac"


def exchange_choices(hearing: Hearing) -> None:
    hearing.choices[0], hearing.choices[1] = hearing.choices[1], hearing.choices[0]


def end_otherwise(hearing: Hearing) -> None:
    hearing.choices[0].finish = "stop"


def count_the_prompt_twice(hearing: Hearing) -> None:
    hearing.prompt_tokens = 6


def miscount(hearing: Hearing) -> None:
    hearing.completion_tokens = 5


def report_another_seed(hearing: Hearing) -> None:
    hearing.seed = SEED + 1


def bend_logprobs(hearing: Hearing) -> None:
    hearing.choices[0].logprobs[1] += 0.01


def forget_logprobs(hearing: Hearing) -> None:
    hearing.choices[1].logprobs.clear()


def send_too_much(hearing: Hearing) -> None:
    hearing.choices[1].ids, hearing.choices[1].text = [8, 9], "de"


def skip_numbers(hearing: Hearing) -> None:
    hearing.gap = "choice 0: token 2 came after 1 tokens"


def add_a_choice(hearing: Hearing) -> None:
    hearing.choices[2] = HeardChoice([1], "x", "stop")


@pytest.mark.parametrize(
    "spoil",
    [
        spoil_text,
        drop_chunk,
        exchange_choices,
        end_otherwise,
        count_the_prompt_twice,
        miscount,
        report_another_seed,
        bend_logprobs,
        forget_logprobs,
        send_too_much,
        skip_numbers,
        add_a_choice,
    ],
)
def test_another_answer_is_wrong(spoil):
    """Whatever differs from the truth: text, ids, order, finish, counts, seed, logprobs."""
    hearing = whole()
    spoil(hearing)

    assert verdict(hearing) is Kind.WRONG


@pytest.mark.parametrize("finish", ["length", "stop", ""])
def test_a_beginning_with_a_normal_end_is_truncated(finish):
    """Whatever it says the reason of its end was."""
    hearing = whole()
    hearing.choices[0] = HeardChoice([5, 6], "ab", finish, [-2.5, -3.0])

    assert verdict(hearing) is Kind.TRUNCATED


def test_a_missing_choice_is_truncated():
    """An answer of two choices is not whole with one."""
    hearing = whole()
    del hearing.choices[1]

    assert verdict(hearing) is Kind.TRUNCATED


@pytest.mark.parametrize(
    "ending",
    [
        {"broken": "RemoteProtocolError: peer closed connection"},
        {"refusal": "503", "code": "target_unavailable"},
        {"refusal": "500", "code": "internal"},
        {"in_band": "target_unavailable"},
        {},
    ],
)
def test_no_whole_answer_is_lost(ending):
    """Broken connections, refusals, errors inside the stream, and streams without an end."""
    assert verdict(Hearing(**ending)) is Kind.LOST


def test_a_deadline_excuses_only_who_set_it():
    """An answer that is cut by the client's own deadline is late; without one it is lost."""
    hearing = Hearing(choices={0: HeardChoice([5], "a")}, in_band="deadline_exceeded")

    assert verdict(hearing, job(Manner.HURRIED)) is Kind.LATE
    assert verdict(hearing) is Kind.LOST


@pytest.mark.parametrize("manner", [Manner.CANCELLED, Manner.UNHEARD])
def test_who_leaves_must_have_heard_the_beginning(manner):
    """A part of an answer is looked at too."""
    right = Hearing(choices={0: HeardChoice([5, 6], "ab")}, gave_up=True)
    wrong = Hearing(choices={0: HeardChoice([5, 9], "ab")}, gave_up=True)

    assert verdict(right, job(manner)) is Kind.LEFT
    assert verdict(wrong, job(manner)) is Kind.WRONG


@pytest.mark.parametrize("door", [Door.GRPC, Door.REST, Door.REST_STREAM])
def test_malformed_requests_must_be_refused_for_their_reason(door):
    """Another status, another reason, an answer or a broken connection will not do."""
    cases = GRPC_CASES if door is Door.GRPC else REST_CASES
    for number, case in enumerate(cases):
        asked = job(Manner.MALFORMED, door, number)
        right = Hearing(refusal=str(case.status), code=case.code.lower() or "anything")

        assert verdict(right, asked) is Kind.REFUSED
        assert verdict(Hearing(refusal="500", code=right.code), asked) is Kind.WRONG
        assert verdict(whole(), asked) is Kind.WRONG
        assert verdict(Hearing(broken="reset"), asked) is Kind.LOST
        assert not case.code or verdict(Hearing(refusal=right.refusal, code="internal"), asked) is Kind.WRONG


def test_only_a_refusal_that_says_when_is_worth_another_try():
    """A full fleet names the time to come again; anything else is judged as it is."""
    full = Hearing(refusal="503", code="overloaded", retry_after="2")

    assert is_busy(full)
    assert not is_busy(Hearing(refusal="503", code="overloaded"))
    assert not is_busy(Hearing(refusal="503", code="target_unavailable", retry_after="1"))


def test_a_killed_gateway_excuses_only_the_answers_of_its_time():
    """And only lost ones: a wrong answer stays wrong."""
    incident = Incident(Fault.KILL_GATEWAY, started_s=10.0)
    lost, wrong = Verdict(Kind.LOST), Verdict(Kind.WRONG)

    def fate(started_s: float, total_s: float, found: Verdict) -> Fate:
        return Fate(job(), Hearing(started_s=started_s, total_s=total_s), found)

    assert _excused(fate(9.0, 2.0, lost), [incident]).verdict.kind is Kind.CUT
    assert _excused(fate(11.0, 2.0, lost), [incident]).verdict.kind is Kind.LOST
    assert _excused(fate(9.0, 2.0, wrong), [incident]).verdict.kind is Kind.WRONG
    assert _excused(fate(9.0, 2.0, lost), [Incident(Fault.KILL_TARGET, 10.0)]).verdict.kind is Kind.LOST


QUIET = {
    "Gateway": [{"replica": "g", "queued": 0.0, "streams": 0.0, "slots": 0}],
    "Target": [{"replica": "t", "held": 0, "slots": 0, "running": 0, "missing_pages": 0, "groups": {"ngram": True}}],
    "drafter-ngram": [{"replica": "d", "sessions": 0.0}],
}


@pytest.mark.parametrize(
    ("deployment", "what"),
    [
        ("Gateway", "queued"),
        ("Gateway", "streams"),
        ("Target", "held"),
        ("Target", "slots"),
        ("Target", "running"),
        ("Target", "missing_pages"),
        ("drafter-ngram", "sessions"),
    ],
)
def test_what_is_still_held_is_a_leak(deployment, what):
    """Of any kind of replica, by name."""
    look = copy.deepcopy(QUIET)
    look[deployment][0][what] = 1

    assert leaks_in(QUIET) == []
    assert [what in leak and deployment in leak for leak in leaks_in(look)] == [True]


def test_a_fleet_is_whole_with_all_replicas_and_links():
    """A missing replica, one that does not answer, and a link that is down all count."""
    expected = {"Gateway": 1, "Target": 1}
    mute, unlinked = copy.deepcopy(QUIET), copy.deepcopy(QUIET)
    mute["Gateway"][0]["error"] = "gone"
    unlinked["Target"][0]["groups"]["ngram"] = False

    assert lacks_in(QUIET, expected) == []
    assert lacks_in(QUIET, {"Target": 2}) == ["Target has 1 of 2 replicas"]
    assert lacks_in(mute, expected) == ["Gateway g does not answer: gone"]
    assert lacks_in(unlinked, expected) == ["Target t has no link to ngram"]


def test_a_long_schedule_has_every_kind_of_fault():
    """In an order that the seed decides; gateways are spared unless asked for."""
    schedule = draw_schedule(random.Random(1), 20_000, kill_gateways=False)
    kinds = {appointment.fault for appointment in schedule}

    assert kinds == set(Fault) - {Fault.KILL_GATEWAY}
    assert [one.after for one in schedule] == sorted(one.after for one in schedule)
    assert schedule == draw_schedule(random.Random(1), 20_000, kill_gateways=False)
