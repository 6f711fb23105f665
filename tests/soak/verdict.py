"""Judges what a client heard by what it should have heard."""

from enum import Enum
from typing import NamedTuple

from soak.hearing import HeardChoice, Hearing
from soak.jobs import Door, Job, Manner
from soak.malformed import GRPC_CASES, REST_CASES
from soak.truth import TrueChoice, Truth

_LOGPROB_TOLERANCE = 1e-3
_BUSY = {"503", "429", "RESOURCE_EXHAUSTED", "UNAVAILABLE"}
_BUSY_CODES = {"overloaded"}
_LATE = {"504", "DEADLINE_EXCEEDED"}


class Kind(Enum):
    """What a request's fate is called."""

    RIGHT = "right"
    REFUSED = "refused"  # as it should be
    LATE = "late"  # its own deadline was too short
    LEFT = "left"  # its client went away, and what it had heard was right
    CUT = "cut"  # its gateway was killed
    LOST = "lost"
    TRUNCATED = "truncated"
    WRONG = "wrong"

    @property
    def is_fault(self) -> bool:
        """Whether it must not happen."""
        return self in {Kind.LOST, Kind.TRUNCATED, Kind.WRONG}


class Verdict(NamedTuple):
    """A fate, and for a fault what it shows in."""

    kind: Kind
    detail: str = ""


def is_busy(hearing: Hearing) -> bool:
    """Whether the fleet asked the client to come again later, as it should when it is full."""
    told = hearing.refusal in _BUSY and hearing.code in _BUSY_CODES and not hearing.choices
    return told and (hearing.retry_after is not None or hearing.refusal == "RESOURCE_EXHAUSTED")


def judge(job: Job, truth: Truth, hearing: Hearing, seed: int) -> Verdict:
    """The fate of a request whose question has ``truth`` for an answer and ``seed`` for a seed."""
    if job.manner is Manner.MALFORMED:
        return _judge_malformed(job, hearing)
    if hearing.gap:
        return Verdict(Kind.WRONG, hearing.gap)
    if hearing.gave_up:
        return _judge_beginning(truth, hearing) or Verdict(Kind.LEFT)
    if job.manner is Manner.HURRIED and (hearing.in_band == "deadline_exceeded" or hearing.refusal in _LATE):
        return _judge_beginning(truth, hearing) or Verdict(Kind.LATE)
    loss = _loss(hearing)
    return Verdict(Kind.LOST, loss) if loss else _judge_whole(truth, hearing, seed)


def _loss(hearing: Hearing) -> str:
    """Why there is no whole answer; empty if there is one."""
    if hearing.broken:
        return hearing.broken
    if hearing.refusal:
        return f"{hearing.refusal} {hearing.code}: {hearing.message}"
    if hearing.in_band:
        return f"error inside the answer: {hearing.in_band}: {hearing.message}"
    return "" if hearing.ended else "no end"


def _judge_malformed(job: Job, hearing: Hearing) -> Verdict:
    case = (GRPC_CASES if job.door is Door.GRPC else REST_CASES)[job.case]
    if hearing.broken:
        return Verdict(Kind.LOST, f"{case.name}: {hearing.broken}")
    expected = str(case.status), case.code.lower()
    found = hearing.refusal, hearing.code if case.code else ""
    if found != expected:
        return Verdict(Kind.WRONG, f"{case.name}: {found} instead of {expected}, code '{hearing.code}'")
    return Verdict(Kind.REFUSED)


def _judge_beginning(truth: Truth, hearing: Hearing) -> Verdict | None:
    """A fault in a part of an answer; None if it is the beginning of the right one."""
    for index, heard in hearing.choices.items():
        if index >= len(truth.choices):
            return Verdict(Kind.WRONG, f"there is no choice {index}")
        true = truth.choices[index]
        if not true.text.startswith(heard.text):
            return Verdict(Kind.WRONG, f"choice {index}: {_difference(heard.text, true.text)}")
        if heard.ids is not None and true.ids[: len(heard.ids)] != heard.ids:
            return Verdict(Kind.WRONG, f"choice {index}: {_difference(heard.ids, true.ids)}")
    return None


def _judge_whole(truth: Truth, hearing: Hearing, seed: int) -> Verdict:
    if set(hearing.choices) - set(range(len(truth.choices))):
        return Verdict(Kind.WRONG, f"choices {sorted(hearing.choices)} of {len(truth.choices)}")
    for index, true in enumerate(truth.choices):
        fault = _judge_choice(index, true, hearing.choices.get(index, HeardChoice()))
        if fault is not None:
            return fault
    return _judge_facts(truth, hearing, seed) or Verdict(Kind.RIGHT)


def _judge_choice(index: int, true: TrueChoice, heard: HeardChoice) -> Verdict | None:
    short = _is_beginning(heard.text, true.text) or (heard.ids is not None and _is_beginning(heard.ids, true.ids))
    agrees = true.text.startswith(heard.text) and (heard.ids is None or true.ids[: len(heard.ids)] == heard.ids)
    if not heard.finish or (short and agrees):
        where = f"{len(heard.text)} of {len(true.text)} characters"
        return Verdict(Kind.TRUNCATED, f"choice {index}: {where}, finish '{heard.finish}'")
    if heard.text != true.text:
        return Verdict(Kind.WRONG, f"choice {index}: {_difference(heard.text, true.text)}")
    if heard.ids is not None and heard.ids != true.ids:
        return Verdict(Kind.WRONG, f"choice {index}: {_difference(heard.ids, true.ids)}")
    if heard.finish != true.finish:
        return Verdict(Kind.WRONG, f"choice {index}: finish '{heard.finish}' instead of '{true.finish}'")
    return _judge_logprobs(index, true, heard)


def _judge_logprobs(index: int, true: TrueChoice, heard: HeardChoice) -> Verdict | None:
    expected = [entry.logprob for entry in true.logprobs]
    if len(heard.logprobs) != len(expected):
        return Verdict(Kind.WRONG, f"choice {index}: {len(heard.logprobs)} logprobs instead of {len(expected)}")
    far = [place for place, pair in enumerate(zip(heard.logprobs, expected, strict=True)) if _apart(*pair)]
    return Verdict(Kind.WRONG, f"choice {index}: logprob of token {far[0]}") if far else None


def _judge_facts(truth: Truth, hearing: Hearing, seed: int) -> Verdict | None:
    expected = {"prompt tokens": truth.prompt_tokens, "completion tokens": truth.completion_tokens, "seed": seed}
    found = {
        "prompt tokens": hearing.prompt_tokens,
        "completion tokens": hearing.completion_tokens,
        "seed": hearing.seed,
    }
    wrong = [f"{name} {found[name]} instead of {value}" for name, value in expected.items() if found[name] != value]
    return Verdict(Kind.WRONG, ", ".join(wrong)) if wrong else None


def _apart(one: float, other: float) -> bool:
    return abs(max(one, -9999.0) - max(other, -9999.0)) > _LOGPROB_TOLERANCE


def _is_beginning(heard: str | list[int], true: str | list[int]) -> bool:
    return len(heard) < len(true) and true[: len(heard)] == heard


def _difference(heard: str | list[int], true: str | list[int]) -> str:
    place = next((i for i in range(max(len(heard), len(true))) if heard[i : i + 1] != true[i : i + 1]), 0)
    return f"differs at {place}: {heard[place : place + 8]!r} instead of {true[place : place + 8]!r}"
