"""The shape of trees where a drafter is sure, and where it is not."""

import pytest
import torch

from draft_dialogue import opening, row
from paceline.core.drafts import DraftBudget, DrawRule
from paceline.core.hashed_tokens import HashedTokens
from paceline.core.sampling_params import SamplingParams
from paceline.drafting.drawing_session import DrawingSession
from paceline.drafting.tree_growth import TreeGrowth
from toy_target import hashed_law

VOCAB = 60
KINDS = {"greedy": SamplingParams(temperature=0.0), "coupled": SamplingParams(temperature=1.0)}


def _shape(scale: float, sampling: SamplingParams, seed: int) -> tuple[float, float]:
    """Depth of the deepest node, and nodes a level, of a tree of 12 nodes from logits of that spread."""
    session = DrawingSession(opening(sampling=sampling, rule=DrawRule.COUPLED, seed=seed))
    session.apply(row(HashedTokens([1, 2, seed % VOCAB]), 0, depth=0))
    growth = TreeGrowth(
        session, session.sampler(()), limits=DraftBudget(8, 12, 4), end_token_ids=frozenset(), max_law_tokens=64
    )
    law = hashed_law(VOCAB, scale=scale)
    while not growth.done:
        growth.add_level(torch.stack([law((1, 2, seed % VOCAB, *node.token_ids)) for node in growth.level]))
    depths = growth.proposal(0.0).tree.depths
    return max(depths), len(depths) / max(depths)


@pytest.mark.parametrize("kind", KINDS)
def test_trees_are_deep_and_narrow_where_the_drafter_is_sure(kind: str) -> None:
    """Wide and shallow where it is not, with the same budget."""
    sure, unsure = ([_shape(scale, KINDS[kind], seed) for seed in range(30)] for scale in (6.0, 0.8))
    depth, width = ([sum(one[part] for one in shapes) / 30 for shapes in (sure, unsure)] for part in (0, 1))
    assert depth[0] > 1.2 * depth[1]
    assert width[0] < 0.8 * width[1]
