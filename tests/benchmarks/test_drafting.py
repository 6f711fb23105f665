"""Tree building and look-up."""

import random

import pytest

from paceline.core.drafts import DraftBudget, DraftOpening, DraftRequest, DraftTree, DrawRule
from paceline.core.hashed_tokens import HashedTokens
from paceline.core.sampling_params import SamplingParams
from paceline.drafting.ngram import NgramDrafter


@pytest.mark.parametrize("top_k", [1, 4], ids=["chain", "tree"])
def test_ngram_proposal(benchmark, top_k):
    """One proposal behind 2000 tokens of text that repeats in parts."""
    draw = random.Random(0)
    phrases = [[draw.randrange(500) for _ in range(12)] for _ in range(20)]
    text = tuple(token_id for _ in range(170) for token_id in draw.choice(phrases))[:2000]
    drafter = NgramDrafter()
    drafter.open([DraftOpening("s", SamplingParams(), 1, 0, DrawRule.COUPLED)])
    row = DraftRequest("s", 0, HashedTokens().hash_at(0), text, DraftBudget(8, 16, top_k))

    def propose():
        drafter.request([row])
        return drafter.collect(0.0)

    (reply,) = benchmark(propose)
    assert len(reply.tree) > 0


def test_tree_facts(benchmark):
    """Depths and children of a tree of 64 nodes, as a pass and a walk ask for them."""
    draw = random.Random(0)
    tree = DraftTree(tuple(range(64)), tuple(draw.randrange(-1, node) for node in range(64)))

    def facts():
        return tree.depths, [tree.children(node) for node in range(-1, 64)]

    depths, children = benchmark(facts)
    assert len(depths) == sum(map(len, children)) == 64
