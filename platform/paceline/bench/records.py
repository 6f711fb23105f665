"""What a benchmark sends and what it writes down about each answer. Times are seconds of one monotonic clock."""

from collections.abc import Sequence
from dataclasses import dataclass

from paceline.bench.variants import Variant


@dataclass(frozen=True, slots=True)
class BenchQuestion:
    """One request, before anybody has been asked."""

    category: str
    prompt: str
    max_tokens: int
    seed: int
    variant: Variant
    cache_salt: str = ""  # requests with unequal salts share no cached prefix, where the endpoint knows salts


@dataclass(frozen=True, slots=True)
class Arrival:
    """Tokens that became visible to the client together."""

    at_s: float
    num_tokens: int


@dataclass(frozen=True, slots=True)
class RoundCounts:
    """One round, in levels: the drafts of a chain, or the levels of a tree that were looked at."""

    tested: int
    accepted: int
    nodes: int = 0  # drafts, of all branches
    depth: int = 0  # levels that were drafted


@dataclass(frozen=True, slots=True)
class DraftCounts:
    """How one answer was drafted, where the endpoint says so. ``rounds`` is empty where it names no rounds."""

    passes: int  # target passes that committed a token
    tested: int
    accepted: int
    rounds: tuple[RoundCounts, ...] = ()


@dataclass(frozen=True, slots=True)
class Recording:
    """One whole answer as the client saw it."""

    arrivals: tuple[Arrival, ...]
    text: str
    prompt_tokens: int
    completion_tokens: int
    exact_counts: bool  # False: the tokens of each arrival were shared out, see `arrivals.share_out`
    drafting: DraftCounts | None = None
    cached_tokens: int = 0  # of the prompt's, where the endpoint says so: those that were not computed again
    route: str = ""  # "plain" or "speculative", where the endpoint says so


@dataclass(frozen=True, slots=True)
class Sample:
    """One request of a run. Exactly one of ``recording`` and ``error`` is there."""

    question: BenchQuestion
    due_s: float  # when it should have been sent: the schedule's time, or the moment a closed loop was free
    sent_s: float
    ended_s: float
    recording: Recording | None
    error: str = ""  # stable reason, such as "OVERLOADED"
    error_detail: str = ""


@dataclass(frozen=True, slots=True)
class BlockRun:
    """All requests of one variant in one block, and the wall time from the first due to the last end."""

    block: int
    variant: str
    samples: Sequence[Sample]
    wall_s: float
