"""The router's decision for one request."""

from dataclasses import dataclass
from enum import Enum


class SpeculationMode(Enum):
    """What the client asks for."""

    AUTO = "auto"
    ON = "on"
    OFF = "off"


class Route(Enum):
    """How a request is decoded."""

    PLAIN = "plain"
    SPECULATIVE = "speculative"


@dataclass(frozen=True, slots=True)
class SpeculationPreference:
    """The request field ``speculation``; None leaves the choice to the router."""

    mode: SpeculationMode = SpeculationMode.AUTO
    drafter: str | None = None
    max_draft_tokens: int | None = None


@dataclass(frozen=True, slots=True)
class Plan:
    """A ceiling for one request: inside it the engine moves alone, step by step.

    A plain plan with a drafter is one that only the operator's switch made plain: the drafter may be used
    once it is turned on again, also in the middle of the answer.
    """

    route: Route
    reason: str  # one sentence for the client
    drafter: str | None = None  # drafter group; None: the answer stays plain
    max_draft_tokens: int = 0
