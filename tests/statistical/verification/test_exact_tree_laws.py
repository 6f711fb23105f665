"""The law of every verifier on trees, computed exactly through the functions that serve."""

import random
from dataclasses import replace

import pytest

from enumeration import RESHAPED, ChainCase, verdict_law
from known_laws import alternating, fixed
from paceline.core.drafts import DraftTree
from paceline.core.sampling_params import SamplingParams
from toy_target import hashed_law
from tree_enumeration import (
    Shape,
    assert_exact_tree,
    chosen_trees,
    drawn_trees,
    repeating_trees,
    tree_output_law,
    tree_row,
)

VERIFIERS = ("coupled", "rejection", "block")
SHAPES: dict[str, Shape] = {
    "two": (-1, -1),
    "three": (-1, -1, -1),
    "chain and a sibling": (-1, -1, 0),
    "two below the second": (-1, -1, 1, 1),
    "two by two": (-1, -1, 0, 0, 1),
    "deep": (-1, -1, 0, 2),
}
PARAMS = [SamplingParams(), SamplingParams(temperature=0.6), *RESHAPED]


def depth_of(shape: Shape) -> int:
    return max(DraftTree((0,) * len(shape), shape).depths)


def random_case(index: int, shape: Shape) -> ChainCase:
    """Prefix-dependent random laws; the target is warped in most cases, the drafter never, so its law has all ids."""
    dice = random.Random(index)
    vocab, scale = dice.choice([(3, 1.5), (3, 3.0), (4, 0.7)]) if len(shape) < 4 else (3, dice.choice([0.7, 2.0]))
    return ChainCase(
        vocab,
        depth_of(shape),
        target=hashed_law(vocab, scale=scale, salt=2 * index),
        draft=hashed_law(vocab, scale=scale, salt=2 * index + 1),
        params=PARAMS[index % len(PARAMS)],
        draft_params=SamplingParams(),
        eos=(vocab - 1,),
    )


@pytest.mark.parametrize("verifier", VERIFIERS)
@pytest.mark.parametrize("shape", SHAPES)
def test_random_trees(verifier: str, shape: str) -> None:
    """Over random prefix-dependent laws and every drawn tree, the output follows p exactly."""
    first = list(SHAPES).index(shape)
    for index in range(first, first + 6 - len(SHAPES[shape]) if shape != "deep" else first + 1):
        assert_exact_tree(verifier, random_case(index, SHAPES[shape]), SHAPES[shape])


@pytest.mark.full
@pytest.mark.parametrize("verifier", VERIFIERS)
@pytest.mark.parametrize("shape", SHAPES)
def test_many_random_trees(verifier: str, shape: str) -> None:
    """The same with every sampling parameter, several times each."""
    for index in range(27):
        assert_exact_tree(verifier, random_case(index, SHAPES[shape]), SHAPES[shape])


@pytest.mark.parametrize("verifier", VERIFIERS)
@pytest.mark.parametrize("trees", [chosen_trees, repeating_trees])
def test_trees_without_laws(verifier: str, trees) -> None:
    """Drafts that were chosen count as one-hot, also where siblings repeat a token."""
    for index, shape in enumerate(SHAPES.values()):
        for offset in (0, 9):
            assert_exact_tree(verifier, random_case(index + offset, shape), shape, trees=trees)


SKEWED, SPREAD = fixed(0.6, 0.3, 0.1), fixed(0.1, 0.1, 0.8)
EDGE_CASES = {
    "q equals p": ChainCase(3, 1, SKEWED, SKEWED),
    "q is one-hot": ChainCase(3, 1, SKEWED, fixed(0, 0, 1)),
    "q has no mass where p has": ChainCase(3, 1, SKEWED, fixed(0.5, 0.5, 0)),
    "disjoint support": ChainCase(4, 1, fixed(0.5, 0.5, 0, 0), fixed(0, 0, 0.3, 0.7)),
    "p is one-hot": ChainCase(3, 1, fixed(0, 1, 0), SPREAD),
    "tied logits": ChainCase(4, 1, fixed(0.25, 0.25, 0.25, 0.25), fixed(0.25, 0.25, 0.25, 0.25)),
    "tied logits, top_k": ChainCase(
        4, 1, fixed(0.4, 0.2, 0.2, 0.2), fixed(0.1, 0.3, 0.3, 0.3), SamplingParams(top_k=2)
    ),
    "the mass before a token reaches top_p exactly": ChainCase(
        4, 1, fixed(0.25, 0.25, 0.25, 0.25), SPREAD, SamplingParams(top_p=0.5)
    ),
}


@pytest.mark.parametrize("verifier", VERIFIERS)
@pytest.mark.parametrize("name", EDGE_CASES)
def test_edge_laws(verifier: str, name: str) -> None:
    """Laws with zeros, ties and cuts: one or two siblings, as many as the draft law can give."""
    case = replace(EDGE_CASES[name], draft_params=SamplingParams())
    support = sum(logit > -1e9 for logit in case.draft(()).tolist())

    assert_exact_tree(verifier, case, (-1,) * min(2, support))
    assert_exact_tree(verifier, case, (-1,) * min(3, support, case.vocab))


def test_a_wrong_tree_costs_no_token() -> None:
    """A tree that is wrong in every node gives one token of the target's own from the same pass."""
    case = ChainCase(4, 2, fixed(0.5, 0.5, 0, 0), fixed(0, 0, 0.5, 0.5))
    tree = DraftTree((2, 3, 2, 3), (-1, -1, 0, 1))
    for verifier in VERIFIERS:
        verdicts = verdict_law(verifier, tree_row(case, case.state(), tree))

        assert {v.token_ids: p for v, p in verdicts.items()} == pytest.approx({(0,): 0.5, (1,): 0.5})
        assert {(v.accepted, v.tested, v.path) for v in verdicts} == {(0, 1, ())}


def test_siblings_raise_acceptance() -> None:
    """Each sibling adds to what `coupled` and `rejection` accept; without replacement k = vocabulary accepts all."""
    case = ChainCase(3, 1, alternating(SKEWED, SPREAD), alternating(SPREAD, SKEWED))
    for verifier in ("coupled", "rejection"):
        means = [tree_output_law(verifier, case, (-1,) * count).mean_accepted for count in (1, 2, 3)]

        assert means[0] < means[1] <= means[2] == pytest.approx(1.0)


@pytest.mark.parametrize("verifier", VERIFIERS)
def test_greedy_trees(verifier: str) -> None:
    """At temperature 0 every verifier emits the argmax path with probability 1."""
    for index in range(6):
        case = replace(random_case(index, (-1, -1, 0, 0)), params=SamplingParams(temperature=0.0))
        assert_exact_tree(verifier, case, (-1, -1, 0, 0), trees=chosen_trees)


def test_the_enumeration_reaches_every_node() -> None:
    """The trees that are checked do branch: some verdict accepts each node."""
    shape = SHAPES["two by two"]
    case = random_case(4, shape)
    paths = set()
    for _, tree, laws in drawn_trees(case, shape):
        paths |= {verdict.path for verdict in verdict_law("rejection", tree_row(case, case.state(), tree, laws))}

    assert paths == {(), (0,), (1,), (0, 2), (0, 3), (1, 4)}
