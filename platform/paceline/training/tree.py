"""The static tree of a Medusa checkpoint: the paths that are most often right, by measured accuracies of its heads."""

import heapq
import json
import math
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple, Protocol

import torch

from paceline.drafting.candidates import Ranks
from paceline.drafting.static_tree import FILE
from paceline.errors import ConfigError
from paceline.training.corpus import Dialogue


class Heads(Protocol):
    """Medusa heads."""

    def __call__(self, features: torch.Tensor) -> torch.Tensor:
        """Logits ``[heads, n, draft vocab]`` of ``features`` ([n, hidden])."""


class Target(Protocol):
    """The frozen target."""

    def hidden(self, token_ids: torch.Tensor) -> torch.Tensor:
        """``[batch, tokens, hidden]`` after the last norm."""


class MeasuredTree(NamedTuple):
    """A tree, best path first, so that any number of its first paths is a tree too."""

    paths: tuple[Ranks, ...]
    accuracies: tuple[tuple[float, ...], ...]  # of each head, by rank
    expected: float  # drafts accepted a round, if the heads were right independently of each other


def rank_accuracies(
    heads: Heads,
    target: Target,
    dialogues: Sequence[Dialogue],
    *,
    num_ranks: int,
    draft_token_ids: Sequence[int] | None,
) -> tuple[tuple[float, ...], ...]:
    """How often the token that came is a head's choice of each rank; of each head, ``num_ranks`` shares.

    Head k reads what the target computed at token i and is asked for token i + k + 2. Only tokens of answers count;
    give greedy answers, where the token that came is the target's choice. Raises ConfigError if none is long enough.
    """
    place_of = None if draft_token_ids is None else {token_id: at for at, token_id in enumerate(draft_token_ids)}
    hits: list[torch.Tensor] = []
    counts: list[int] = []
    for dialogue in dialogues:
        token_ids = (*dialogue.prompt_ids, *dialogue.answer_ids)
        first = len(dialogue.prompt_ids) - 1  # the answer's first token comes from here
        with torch.no_grad():
            features = target.hidden(torch.tensor([token_ids]))[0, first:]
            ranked = heads(features.float()).topk(num_ranks, dim=-1).indices  # [heads, n, ranks]
        for head, choices in enumerate(ranked):
            came = token_ids[first + head + 2 :]
            wanted = torch.tensor([token if place_of is None else place_of.get(token, -1) for token in came])
            if head == len(hits):
                hits.append(torch.zeros(num_ranks))
                counts.append(0)
            hits[head] += (choices[: len(came)] == wanted[:, None]).sum(0)
            counts[head] += len(came)
    if not counts or not min(counts):
        raise ConfigError("The dialogues are too short to measure every head; give longer answers.")
    return tuple(tuple((of_head / count).tolist()) for of_head, count in zip(hits, counts, strict=True))


def best_tree(accuracies: Sequence[Sequence[float]], *, nodes: int) -> MeasuredTree:
    """The tree of ``nodes`` nodes with the largest sum of path probabilities (Cai et al. 2024).

    A path's probability is the product of the accuracies along it. Nodes are added greedily, which is best here: a
    path is never likelier than its beginning. A choice comes after the better ones of its head, also where a small
    measurement says otherwise. Fewer nodes where nothing likelier than 0 is left. Raises ConfigError for an accuracy
    that is none.
    """
    if not accuracies or any(not 0 <= share <= 1 for of_head in accuracies for share in of_head):
        raise ConfigError("Accuracies must be shares from 0 to 1, for one head at least.")
    waiting: list[tuple[float, int, Ranks]] = []  # (minus the probability, depth, path): best first, shallow first

    def add(above: Ranks, rank: int) -> None:
        if len(above) < len(accuracies) and rank < len(accuracies[len(above)]):
            path = (*above, rank)
            probability = math.prod(accuracies[head][choice] for head, choice in enumerate(path))
            if probability > 0:
                heapq.heappush(waiting, (-probability, len(path), path))

    add((), 0)
    paths: list[Ranks] = []
    expected = 0.0
    while waiting and len(paths) < nodes:
        negative, _, path = heapq.heappop(waiting)
        paths.append(path)
        expected -= negative
        add(path, 0)
        add(path[:-1], path[-1] + 1)
    return MeasuredTree(tuple(paths), tuple(map(tuple, accuracies)), expected)


def write_tree(tree: MeasuredTree, folder: Path) -> None:
    """Write the tree beside the heads that it was measured with."""
    (folder / FILE).write_text(json.dumps(tree._asdict()) + "\n", "utf-8")
