"""How well answers were drafted: pure functions over recorded rounds.

The figures, and how they are averaged (docs/concepts/lossless.md has the words):

- a_i: of the rounds in which position i was tested, the share that accepted it; position 1 is the first draft.
  Conditional on all positions before it, so that 1 + a_1 + a_1 a_2 + ... is the expected number of tokens of a round.
- tau: tokens that were committed per pass of the target.
- Mean over prompts: each answer's own figure, averaged, so that a long answer counts no more than a short one.
  Pooled: sums over all answers, so that every round counts the same.
- Intervals: percentile bootstrap over prompts, 95 %, since rounds of one answer are not independent.
"""

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from paceline.bench.loops import is_looping
from paceline.bench.records import Recording

_RESAMPLES = 2_000
_INTERVAL = (2.5, 97.5)  # percent

Floats = npt.NDArray[np.float64]


class Interval(NamedTuple):
    """A figure with its 95 % interval."""

    value: float
    low: float
    high: float


@dataclass(frozen=True, slots=True)
class DraftedAnswer:
    """How one answer was drafted; the prompt goes by its place in its set."""

    prompt: int
    category: str
    looping: bool
    tokens: int
    passes: int  # of the target, that committed a token
    tested: tuple[int, ...]  # rounds that tested position 1, 2, ...
    accepted: tuple[int, ...]  # rounds that accepted it
    rounds: int
    drafted_rounds: int  # with any draft
    nodes: int  # of all rounds together
    levels: int  # of all rounds together

    @property
    def accepted_tokens(self) -> int:
        """Drafts that became tokens of the answer."""
        return sum(self.accepted)


@dataclass(frozen=True, slots=True)
class Figures:
    """Figures of a set of answers. None where nothing was seen that could tell."""

    answers: int
    tokens: int
    first: Interval | None  # a_1, mean over prompts
    positions: tuple[float, ...]  # a_i, mean over prompts
    positions_pooled: tuple[float, ...]
    tau: Interval | None  # mean over prompts
    tau_pooled: float | None
    drafted_share: float | None  # of rounds, those with any draft
    depth: Interval | None  # levels of a round's drafts; rounds without any left out; mean over prompts
    width: Interval | None  # nodes of a level; likewise


def drafted_answer(recording: Recording, *, prompt: int, category: str) -> DraftedAnswer:
    """Count the rounds of one answer."""
    rounds = recording.drafting.rounds if recording.drafting else ()
    tested, accepted = Counter[int](), Counter[int]()
    for entry in rounds:
        tested.update(range(entry.tested))
        accepted.update(range(entry.accepted))
    return DraftedAnswer(
        prompt=prompt,
        category=category,
        looping=is_looping(recording.text),
        tokens=recording.completion_tokens,
        passes=recording.drafting.passes if recording.drafting else 0,
        tested=tuple(tested[level] for level in range(len(tested))),
        accepted=tuple(accepted[level] for level in range(len(tested))),
        rounds=len(rounds),
        drafted_rounds=sum(entry.nodes > 0 for entry in rounds),
        nodes=sum(entry.nodes for entry in rounds),
        levels=sum(entry.depth for entry in rounds),
    )


def figures(answers: Sequence[DraftedAnswer], *, seed: int = 0) -> Figures:
    """Figures of ``answers``, all of them; leave looping ones out before."""
    deepest = max((len(answer.tested) for answer in answers), default=0)
    tested = [sum(_at(answer.tested, level) for answer in answers) for level in range(deepest)]
    accepted = [sum(_at(answer.accepted, level) for answer in answers) for level in range(deepest)]
    passes = sum(answer.passes for answer in answers)
    rounds = sum(answer.rounds for answer in answers)
    tokens = sum(answer.tokens for answer in answers)
    return Figures(
        answers=len(answers),
        tokens=tokens,
        first=mean_interval([a.accepted[0] / a.tested[0] for a in answers if _at(a.tested, 0)], seed=seed),
        positions=tuple(_mean_position(answers, level) for level in range(deepest)),
        positions_pooled=tuple(hits / count for hits, count in zip(accepted, tested, strict=True)),
        tau=mean_interval([answer.tokens / answer.passes for answer in answers if answer.passes], seed=seed),
        tau_pooled=tokens / passes if passes else None,
        drafted_share=sum(answer.drafted_rounds for answer in answers) / rounds if rounds else None,
        depth=mean_interval([depth_of(answer) for answer in answers if answer.drafted_rounds], seed=seed),
        width=mean_interval([width_of(answer) for answer in answers if answer.levels], seed=seed),
    )


def depth_of(answer: DraftedAnswer) -> float:
    """Mean levels of the rounds with drafts."""
    return answer.levels / answer.drafted_rounds


def width_of(answer: DraftedAnswer) -> float:
    """Mean nodes of a level."""
    return answer.nodes / answer.levels


def mean_interval(values: Sequence[float], *, seed: int = 0) -> Interval | None:
    """Mean with its interval; None for no values."""
    if not values:
        return None
    array = np.asarray(values, dtype=np.float64)
    return Interval(float(array.mean()), *_percentiles(_resampled_means(array, seed)))


def ratio_of_means(above: Sequence[float], below: Sequence[float], *, seed: int = 0) -> Interval | None:
    """Mean of ``above`` over mean of ``below``, two sets of different prompts; None where either is empty or 0."""
    if not above or not below or not sum(below):
        return None
    tops, bottoms = np.asarray(above, dtype=np.float64), np.asarray(below, dtype=np.float64)
    ratios = _resampled_means(tops, seed) / _resampled_means(bottoms, seed + 1)
    return Interval(float(tops.mean() / bottoms.mean()), *_percentiles(ratios))


def accepted_ratio(mine: Sequence[DraftedAnswer], theirs: Sequence[DraftedAnswer], *, seed: int = 0) -> Interval | None:
    """Accepted drafts per pass over those of another drafter, pooled over the prompts that neither answered in a loop.

    The bootstrap draws prompts, so it keeps the two answers to one prompt together. None where there is nothing to
    compare.
    """
    others = {answer.prompt: answer for answer in theirs if not answer.looping}
    pairs = [(answer, others[answer.prompt]) for answer in mine if not answer.looping and answer.prompt in others]
    table = np.array(
        [(a.accepted_tokens, a.passes, b.accepted_tokens, b.passes) for a, b in pairs], dtype=np.float64
    ).reshape(-1, 4)
    ratio = _per_pass_ratio(table.sum(axis=0)[None])[0]
    if not np.isfinite(ratio):
        return None
    drawn = np.random.default_rng(seed).integers(len(table), size=(_RESAMPLES, len(table)))
    return Interval(float(ratio), *_percentiles(_per_pass_ratio(table[drawn].sum(axis=1))))


def select(
    answers: Sequence[DraftedAnswer], keep: Callable[[DraftedAnswer], bool] = lambda _: True
) -> list[DraftedAnswer]:
    """Those answers that do not loop, and that ``keep`` wants."""
    return [answer for answer in answers if not answer.looping and keep(answer)]


def _mean_position(answers: Sequence[DraftedAnswer], level: int) -> float:
    return float(np.mean([a.accepted[level] / a.tested[level] for a in answers if _at(a.tested, level)]))


def _at(counts: Sequence[int], level: int) -> int:
    return counts[level] if level < len(counts) else 0


def _per_pass_ratio(sums: Floats) -> Floats:
    """Ratios ``[n]`` of sums ``[n, 4]``: (accepted, passes) of one side, then of the other."""
    with np.errstate(divide="ignore", invalid="ignore"):
        ratios: Floats = (sums[:, 0] / sums[:, 1]) / (sums[:, 2] / sums[:, 3])
    return ratios


def _resampled_means(values: Floats, seed: int) -> Floats:
    drawn = np.random.default_rng(seed).integers(len(values), size=(_RESAMPLES, len(values)))
    means: Floats = values[drawn].mean(axis=1)
    return means


def _percentiles(values: Floats) -> tuple[float, float]:
    low, high = np.nanpercentile(values, _INTERVAL)
    return float(low), float(high)
