"""How deep to draft for each sequence of a pass: as deep as it commits more tokens per second.

Drafts make a pass longer, the more so the more sequences share it. At a small batch nearly all drafts
pay; at a large one only those that are likely to be accepted do, and in the end none
(Su et al. 2023, arXiv 2310.18813; Liu et al. 2024, arXiv 2406.14066).
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Prospect:
    """What drafts for one sequence promise."""

    reach: tuple[float, ...]  # chance that the draft of each level is accepted; never rises
    nodes_per_level: float = 1.0


def best_depths(prospects: Sequence[Prospect], num_plain: int, pass_s: Callable[[int], float]) -> list[int]:
    """Depth for each prospect; 0: not worth it. ``num_plain`` further rows of the pass have no drafts.

    Levels are added in the order of what they bring for a token of the pass. Where all of them are equally
    wide, no other depths are better, whatever the shape of ``pass_s``.
    """
    num_rows = len(prospects) + num_plain
    if not prospects or pass_s(num_rows) <= 0:
        return [len(prospect.reach) for prospect in prospects]
    order = sorted(
        (
            (-chance / prospect.nodes_per_level, level, index)
            for index, prospect in enumerate(prospects)
            for level, chance in enumerate(prospect.reach)
        ),
    )
    committed, tokens = float(num_rows), float(num_rows)
    best_rate, best_count = committed / pass_s(num_rows), 0
    for count, (_, level, index) in enumerate(order, 1):
        committed += prospects[index].reach[level]
        tokens += prospects[index].nodes_per_level
        rate = committed / pass_s(round(tokens))
        if rate > best_rate:
            best_rate, best_count = rate, count
    depths = [0] * len(prospects)
    for _, level, index in order[:best_count]:
        depths[index] = level + 1
    return depths
