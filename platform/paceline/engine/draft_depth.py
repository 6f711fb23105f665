"""How deep to draft for each sequence of a pass: as deep as it commits more tokens per second.

Drafts make a pass longer, the more so the more sequences share it, and a drafter in the target's own
process takes its time as well. At a small batch most drafts pay; at a large one only those that are
likely to be accepted do, and in the end none
(Su et al. 2023, arXiv 2310.18813; Liu et al. 2024, arXiv 2406.14066).
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Prospect:
    """What drafts for one sequence promise."""

    reach: tuple[float, ...]  # chance that the draft of each level is accepted; never rises
    nodes_per_level: float = 1.0


def no_time(levels: int) -> float:  # noqa: ARG001 - a `Callable[[int], float]`
    """Of drafters that work beside the target."""
    return 0.0


def best_depths(
    prospects: Sequence[Prospect],
    num_plain: int,
    pass_s: Callable[[int], float],
    draft_s: Callable[[int], float] = no_time,
) -> list[int]:
    """Depth for each prospect; 0: not worth it. ``num_plain`` further rows of the pass have no drafts.

    ``draft_s`` is what drafting adds to the pass, by the levels of the deepest draft. Where all levels are equally
    wide, no other depths commit more tokens per second, whatever the shape of ``pass_s`` and ``draft_s``.
    """
    num_rows = len(prospects) + num_plain
    deepest = max((len(prospect.reach) for prospect in prospects), default=0)
    if not deepest or pass_s(num_rows) <= 0:
        return [len(prospect.reach) for prospect in prospects]
    plans = [
        _best_within(deepest_allowed, prospects, num_rows, pass_s, draft_s) for deepest_allowed in range(deepest + 1)
    ]
    return max(plans, key=lambda plan: plan[0])[1]


def _best_within(
    deepest: int,
    prospects: Sequence[Prospect],
    num_rows: int,
    pass_s: Callable[[int], float],
    draft_s: Callable[[int], float],
) -> tuple[float, list[int]]:
    """(tokens per second, depths) of the best plan with at most ``deepest`` levels.

    Levels are added in the order of what they bring for a token of the pass.
    """
    order = sorted(
        (-chance / prospect.nodes_per_level, level, index)
        for index, prospect in enumerate(prospects)
        for level, chance in enumerate(prospect.reach[:deepest])
    )
    committed, tokens, wait_s = float(num_rows), float(num_rows), draft_s(deepest)
    best_rate, best_count = committed / (wait_s + pass_s(num_rows)), 0
    for count, (_, level, index) in enumerate(order, 1):
        committed += prospects[index].reach[level]
        tokens += prospects[index].nodes_per_level
        rate = committed / (wait_s + pass_s(round(tokens)))
        if rate > best_rate:
            best_rate, best_count = rate, count
    depths = [0] * len(prospects)
    for _, level, index in order[:best_count]:
        depths[index] = level + 1
    return best_rate, depths
