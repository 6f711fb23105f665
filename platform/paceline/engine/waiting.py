"""Whether a pass waits for drafts that are under way: one pure function over a snapshot.

At the start of a step and at every reply the engine takes the move that commits the most tokens per
second. With P the rows whose reply is worth having, A all others, w the time until the replies are
here, t() the time of a pass and C() the tokens that it commits:

    wait  C(A + P) / (w + t(A + P))
    fill  (C(A) + C(A + P)) / (max(t(A), w) + t(A + P))    A runs now, P joins the next pass
    go    C(A + P plain) / t(A + P plain)

P is chosen too: the rows whose replies come first, up to each of the expected times.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import Enum
from math import isfinite
from typing import NamedTuple


@dataclass(frozen=True, slots=True)
class Outstanding:
    """A decoding row whose reply is under way. Times are seconds from now."""

    tokens: int  # committed tokens that its pass computes
    drafts: int  # draft tokens that were asked for
    expected_tokens: float  # that a pass with these drafts commits
    reply_s: float  # until the reply, on average
    reply_latest_s: float  # until the reply, with two deviations; 0 or less: overdue; infinite: unknown
    deadline_s: float  # until the reply is of no use
    waited_s: float = 0.0  # since the row could have run
    left_out: bool = False  # of the last pass
    held_drafts: int = 0  # left of older replies: what it runs with if it does not wait; plain where there are none
    held_expected: float = 1.0  # tokens that a pass with these commits


@dataclass(frozen=True, slots=True)
class Snapshot:
    """What the rule looks at."""

    ready_tokens: int  # of all other rows, prompt chunks and drafts included
    ready_expected: float  # tokens that these rows commit; prompt chunks by their `prompt_worth`
    outstanding: tuple[Outstanding, ...]
    pass_s: Callable[[int], float]  # time of a pass by its tokens
    waited_s: float = 0.0  # by this step until now
    patience: float = 1.0  # longest wait of any row, in passes


class Action(Enum):
    """What the engine does next."""

    WAIT = "wait"
    FILL = "fill"
    GO = "go"


class Move(NamedTuple):
    """One possible move. ``rows`` index ``Snapshot.outstanding``: those waited for, or left out."""

    action: Action
    rows: tuple[int, ...]
    rate: float  # tokens per second
    longest_s: float = 0.0  # to wait now, at most


def prompt_worth(num_tokens: int, pass_s: Callable[[int], float]) -> float:
    """Tokens that one row decodes plainly in the time that ``num_tokens`` of prompts take.

    Prompts commit nothing, or one token at their end; at no worth of their own they would never go into a gap.
    """
    single_s = pass_s(1)
    return pass_s(num_tokens) / single_s if num_tokens and single_s > 0 else 0.0


def choose(snapshot: Snapshot) -> Move:
    """The best move within its bounds; going at once where another is no better."""
    best = _go(snapshot)
    for rows in _first_replies(snapshot):
        for move in (_fill(snapshot, rows), _wait(snapshot, rows)):
            if move is not None and move.rate > best.rate:
                best = move
    return best


def _first_replies(snapshot: Snapshot) -> Iterator[tuple[int, ...]]:
    """Rows that can be expected, those of the earliest replies first, then with each later ones."""
    latest = [row.reply_latest_s for row in snapshot.outstanding]
    for cut in sorted({seconds for seconds in latest if isfinite(seconds) and seconds > 0}):
        yield tuple(index for index, seconds in enumerate(latest) if 0 < seconds <= cut)


def _go(snapshot: Snapshot) -> Move:
    pass_s = snapshot.pass_s(snapshot.ready_tokens + sum(row.tokens + row.held_drafts for row in snapshot.outstanding))
    committed = snapshot.ready_expected + sum(row.held_expected for row in snapshot.outstanding)
    return Move(Action.GO, (), committed / pass_s if pass_s > 0 else float("inf"))


def _wait(snapshot: Snapshot, rows: tuple[int, ...]) -> Move | None:
    case = _Case(snapshot, rows)
    bound = case.bound_s(max(snapshot.waited_s, *(row.waited_s for row in snapshot.outstanding)))
    if bound <= 0 or case.reply_s > bound:
        return None
    rate = case.joint_committed / (case.reply_latest_s + case.joint_pass_s)
    return Move(Action.WAIT, rows, rate, min(case.reply_latest_s, bound))


def _fill(snapshot: Snapshot, rows: tuple[int, ...]) -> Move | None:
    case = _Case(snapshot, rows)
    if not case.rest_tokens or any(row.left_out for row in case.chosen):
        return None
    gap_s = snapshot.pass_s(case.rest_tokens)
    if max(gap_s, case.reply_s) > case.bound_s(max(row.waited_s for row in case.chosen)):
        return None
    elapsed_s = max(gap_s, case.reply_latest_s) + case.joint_pass_s
    return Move(Action.FILL, rows, (case.rest_committed + case.joint_committed) / elapsed_s)


class _Case:
    """One choice of P: what the formulas need of it."""

    def __init__(self, snapshot: Snapshot, rows: tuple[int, ...]) -> None:
        self._patience = snapshot.patience
        self.chosen = [snapshot.outstanding[index] for index in rows]
        others = [row for index, row in enumerate(snapshot.outstanding) if index not in rows]
        self.rest_tokens = snapshot.ready_tokens + sum(row.tokens + row.held_drafts for row in others)
        self.rest_committed = snapshot.ready_expected + sum(row.held_expected for row in others)
        self.joint_pass_s = snapshot.pass_s(self.rest_tokens + sum(row.tokens + row.drafts for row in self.chosen))
        self.joint_committed = self.rest_committed + sum(row.expected_tokens for row in self.chosen)
        self.reply_s = max(row.reply_s for row in self.chosen)
        self.reply_latest_s = max(row.reply_latest_s for row in self.chosen)

    def bound_s(self, waited_s: float) -> float:
        """How much longer rows that have waited for ``waited_s`` may wait.

        (E - 1) passes, E the tokens of a round with drafts over those of one without: going at once would have
        committed as much.
        """
        per_round = sum(row.expected_tokens for row in self.chosen) / sum(row.held_expected for row in self.chosen)
        passes = min(per_round - 1, self._patience)
        return min(passes * self.joint_pass_s - waited_s, *(row.deadline_s for row in self.chosen))
