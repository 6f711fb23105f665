"""What is done with each question: the door it takes, the speculation it wants, and how its client behaves."""

import random
from dataclasses import dataclass
from enum import Enum

from paceline.core.plans import SpeculationMode, SpeculationPreference
from paceline.gateway.gateway_request import GatewayRequest
from soak.malformed import GRPC_CASES, REST_CASES


class Door(Enum):
    """How a request travels."""

    REST = "rest"
    REST_STREAM = "rest stream"
    GRPC = "grpc"


class Manner(Enum):
    """How the client behaves."""

    WHOLE = "whole"  # reads to the end
    SLOW = "slow"  # reads to the end, with pauses, through a small buffer
    CANCELLED = "cancelled"  # goes away after some chunks
    UNHEARD = "unheard"  # goes away before the first byte
    HURRIED = "hurried"  # has a deadline that may be too short
    MALFORMED = "malformed"  # asks for what cannot be


@dataclass(frozen=True)
class Job:
    """One request of the soak."""

    number: int
    question: int  # index
    door: Door
    manner: Manner
    speculation: SpeculationPreference
    num_chunks: int = 0  # CANCELLED: chunks to hear before going away
    patience_s: float = 0.0  # UNHEARD: time to wait; HURRIED: the deadline; SLOW: pause between reads
    case: int = 0  # MALFORMED: which of the door's cases


_MANNERS = {
    Manner.WHOLE: 74,
    Manner.SLOW: 3,
    Manner.CANCELLED: 9,
    Manner.UNHEARD: 3,
    Manner.HURRIED: 4,
    Manner.MALFORMED: 7,
}


def draw_jobs(rng: random.Random, count: int, questions: list[GatewayRequest], groups: tuple[str, ...]) -> list[Job]:
    """``count`` jobs in the order in which they start; ``groups`` are the drafter groups."""
    return [_job(rng, number, rng.randrange(len(questions)), groups) for number in range(count)]


def _job(rng: random.Random, number: int, question: int, groups: tuple[str, ...]) -> Job:
    door = rng.choice((Door.REST, Door.REST_STREAM, Door.REST_STREAM, Door.GRPC, Door.GRPC))
    manner = rng.choices(list(_MANNERS), list(_MANNERS.values()))[0]
    if manner is Manner.HURRIED:
        door = Door.GRPC  # REST has no field for a deadline
    if manner in {Manner.CANCELLED, Manner.SLOW} and door is Door.REST:
        door = Door.REST_STREAM
    patience_s = {
        Manner.UNHEARD: rng.random() * 0.05,
        Manner.HURRIED: rng.choice((0.01, 0.05, 0.2, 1.0)),
        Manner.SLOW: rng.choice((0.01, 0.05)),
    }
    return Job(
        number,
        question,
        door,
        manner,
        _speculation(rng, groups),
        num_chunks=rng.randint(1, 6),
        patience_s=patience_s.get(manner, 0.0),
        case=rng.randrange(len(GRPC_CASES if door is Door.GRPC else REST_CASES)),
    )


def _speculation(rng: random.Random, groups: tuple[str, ...]) -> SpeculationPreference:
    mode = rng.choice((SpeculationMode.AUTO, SpeculationMode.ON, SpeculationMode.ON, SpeculationMode.OFF))
    by_group = groups and mode is not SpeculationMode.OFF and rng.random() < 0.7
    budget = rng.randint(0, 8) if rng.random() < 0.3 else None
    return SpeculationPreference(mode, rng.choice(groups) if by_group else None, budget)
