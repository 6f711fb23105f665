"""Statistics of recorded answers: pure functions, in seconds and tokens.

How speed is derived from what a client sees:

- TTFT: from the moment a request was due until its first tokens. In an open loop that is the scheduled
  arrival, so a client or server that falls behind is not excused ("coordinated omission").
- ITL: a chunk of k tokens that comes g seconds after the chunk before it counts as k intervals of g / k.
- TPOT: the mean of an answer's intervals: time after the first chunk over tokens after the first chunk.
- tokens/s: sum of tokens over sum of time. Each moment is shared equally among the requests in flight, so that
  answers can be left out, or sorted by category, with the time they took. One at a time this is plainly
  tokens over durations; with N at a time the sum over all answers is the busy time.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from paceline.bench.loops import is_looping
from paceline.bench.records import BlockRun, Recording, Sample

_MAX_LAG_S = 0.02  # a later send than this, in the 99th percentile, is a client that fell behind


@dataclass(frozen=True, slots=True)
class Distribution:
    """Mean and percentiles of a set of values, in the values' unit."""

    count: int
    mean: float
    p50: float
    p90: float
    p99: float


@dataclass(frozen=True, slots=True)
class Slo:
    """What a request must keep to count as good; None: no limit."""

    ttft_s: float | None = None
    tpot_s: float | None = None

    @property
    def is_set(self) -> bool:
        """Whether there is any limit."""
        return self.ttft_s is not None or self.tpot_s is not None


@dataclass(frozen=True, slots=True)
class SampleShare:
    """One request with the share of its block's busy time that it is charged with."""

    sample: Sample
    block: int
    share_s: float


@dataclass(frozen=True, slots=True)
class LevelRate:
    """a_i for i = ``level`` - 1: of the rounds that tested this level, the share that accepted it."""

    level: int  # from 1
    tested: int
    rate: float


@dataclass(frozen=True, slots=True)
class Speed:
    """Figures of a set of finished answers. None where nothing was seen that could tell."""

    answers: int
    tokens: int
    seconds: float  # charged time, see the top of this module
    tokens_per_s: float | None
    ttft_s: Distribution | None
    tpot_s: Distribution | None
    itl_s: Distribution | None
    chunk_gap_s: Distribution | None  # between chunks, whatever is in them: what a reader sees as stutter
    within_slo: float | None  # share of answers
    tau: float | None
    alpha: float | None
    acceptance: tuple[LevelRate, ...]
    exact_counts: bool
    routes: dict[str, int]


@dataclass(frozen=True, slots=True)
class LoadFigures:
    """Figures of everything that was sent, failed requests included."""

    requests: int
    completed: int
    errors: dict[str, int]  # reason -> requests
    error_examples: dict[str, str]  # reason -> one message
    wall_s: float
    prompt_tokens: int
    cached_tokens: int  # of the prompts', those that came from a prefix cache
    tokens: int
    tokens_per_wall_s: float
    requests_per_s: float
    goodput_per_s: float | None  # requests per second that kept the SLO; a failed one keeps none
    lag_s: Distribution | None  # how late the client sent what was due
    client_behind: bool


def distribution(values: Iterable[float]) -> Distribution | None:
    """Mean and percentiles, interpolated between neighbours; None for no values."""
    array = np.fromiter(values, dtype=np.float64)
    if not array.size:
        return None
    p50, p90, p99 = (float(value) for value in np.percentile(array, (50, 90, 99)))
    return Distribution(array.size, float(array.mean()), p50, p90, p99)


def ttft_s(sample: Sample) -> float | None:
    """Time from when the request was due to its first tokens; None if it has none."""
    recording = sample.recording
    return recording.arrivals[0].at_s - sample.due_s if recording and recording.arrivals else None


def tpot_s(recording: Recording) -> float | None:
    """Mean time per token after the first chunk; None if nothing came after it."""
    arrivals = recording.arrivals
    later = sum(arrival.num_tokens for arrival in arrivals[1:])
    return (arrivals[-1].at_s - arrivals[0].at_s) / later if later else None


def intervals_s(recording: Recording) -> list[float]:
    """Inter-token latencies: k intervals of g / k for k tokens after a gap g."""
    arrivals = recording.arrivals
    return [
        (now.at_s - before.at_s) / now.num_tokens for before, now in pairwise(arrivals) for _ in range(now.num_tokens)
    ]


def gaps_s(recording: Recording) -> list[float]:
    """Times between chunks."""
    arrivals = recording.arrivals
    return [now.at_s - before.at_s for before, now in pairwise(arrivals)]


def shared_time(run: BlockRun) -> list[SampleShare]:
    """Charge each moment of the block in equal parts to the requests in flight then."""
    changes = Counter[float]()  # time -> change of the number in flight
    for sample in run.samples:
        changes[sample.sent_s] += 1
        changes[sample.ended_s] -= 1
    edges = sorted(changes)
    charged = dict.fromkeys(edges[:1], 0.0)  # what a request in flight all the time would be charged by then
    flying, total = 0, 0.0
    for start, stop in pairwise(edges):
        flying += changes[start]
        total += (stop - start) / flying if flying else 0.0
        charged[stop] = total
    return [SampleShare(sample, run.block, charged[sample.ended_s] - charged[sample.sent_s]) for sample in run.samples]


def looping(share: SampleShare) -> bool:
    """Whether the answer repeats itself."""
    return share.sample.recording is not None and is_looping(share.sample.recording.text)


def speed(shares: Sequence[SampleShare], slo: Slo) -> Speed:
    """Figures of the finished answers among ``shares``."""
    done = [share for share in shares if share.sample.recording is not None]
    recordings = [share.sample.recording for share in done if share.sample.recording is not None]
    tokens = sum(recording.completion_tokens for recording in recordings)
    seconds = sum(share.share_s for share in done)
    drafting = [recording.drafting for recording in recordings if recording.drafting]
    passes = sum(counts.passes for counts in drafting)
    tested = sum(counts.tested for counts in drafting)
    drafted_tokens = sum(recording.completion_tokens for recording in recordings if recording.drafting)
    good = sum(keeps(share.sample, slo) for share in done)
    return Speed(
        answers=len(done),
        tokens=tokens,
        seconds=seconds,
        tokens_per_s=tokens / seconds if seconds else None,
        ttft_s=distribution(value for share in done if (value := ttft_s(share.sample)) is not None),
        tpot_s=distribution(value for recording in recordings if (value := tpot_s(recording)) is not None),
        itl_s=distribution(value for recording in recordings for value in intervals_s(recording)),
        chunk_gap_s=distribution(value for recording in recordings for value in gaps_s(recording)),
        within_slo=good / len(done) if slo.is_set and done else None,
        tau=drafted_tokens / passes if passes else None,
        alpha=sum(counts.accepted for counts in drafting) / tested if tested else None,
        acceptance=acceptance(recordings),
        exact_counts=all(recording.exact_counts for recording in recordings),
        routes=dict(Counter(recording.route for recording in recordings if recording.route)),
    )


def acceptance(recordings: Iterable[Recording]) -> tuple[LevelRate, ...]:
    """a_i for each level that was ever tested."""
    tested, accepted = Counter[int](), Counter[int]()
    for recording in recordings:
        for entry in recording.drafting.rounds if recording.drafting else ():
            tested.update(range(1, entry.tested + 1))
            accepted.update(range(1, entry.accepted + 1))
    return tuple(LevelRate(level, tested[level], accepted[level] / tested[level]) for level in sorted(tested))


def keeps(sample: Sample, slo: Slo) -> bool:
    """Whether a request kept the SLO. A failed one keeps none; an answer of one token has no TPOT to miss."""
    if sample.recording is None:
        return False
    first, each = ttft_s(sample), tpot_s(sample.recording)
    in_time = slo.ttft_s is None or (first is not None and first <= slo.ttft_s)
    return in_time and (slo.tpot_s is None or each is None or each <= slo.tpot_s)


def load_figures(runs: Sequence[BlockRun], slo: Slo) -> LoadFigures:
    """Figures of all requests of one variant."""
    samples = [sample for run in runs for sample in run.samples]
    wall_s = sum(run.wall_s for run in runs)
    done = [sample.recording for sample in samples if sample.recording]
    tokens = sum(recording.completion_tokens for recording in done)
    good = sum(keeps(sample, slo) for sample in samples)
    lag = distribution(sample.sent_s - sample.due_s for sample in samples)
    failed = [sample for sample in samples if sample.recording is None]
    return LoadFigures(
        requests=len(samples),
        completed=len(done),
        errors=dict(Counter(sample.error for sample in failed)),
        error_examples={sample.error: sample.error_detail for sample in failed},
        wall_s=wall_s,
        prompt_tokens=sum(recording.prompt_tokens for recording in done),
        cached_tokens=sum(recording.cached_tokens for recording in done),
        tokens=tokens,
        tokens_per_wall_s=tokens / wall_s if wall_s else 0.0,
        requests_per_s=len(done) / wall_s if wall_s else 0.0,
        goodput_per_s=good / wall_s if slo.is_set and wall_s else None,
        lag_s=lag,
        client_behind=lag is not None and lag.p99 > _MAX_LAG_S,
    )
